// SPDX-License-Identifier: Apache-2.0
//
// The store side of the benchmarks: opening scratch stores, and branches that grow.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cairn/store.h"
#include "tools/bench/bench.h"
#include "tools/bench/kv_source.h"

namespace cairn::bench {

// Opens or creates the store at `path`, and notes its backend and sync method in the report.
Result<Store> OpenStore(const std::string& path, Options options, Report* report);

// Blocks until the segments in stock number `segments` (0: any) and none is being made any more,
// so that the next block does not share the device with the maker. A minute at most.
Status WaitForPool(const Store& store, uint64_t segments);

// The KV that an append benchmark gathers from: Config::source_bytes of it, in its layout.
Result<KvPool> MakeSource(const Config& config, uint64_t token_bytes);

// A branch fed from a pool, `tokens` positions an append.
class Writer {
 public:
  static Result<std::unique_ptr<Writer>> Create(Store& store, ModelId model, const KvPool* pool,
                                                uint64_t first_token, uint64_t tokens);
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  // Describes the next positions; cheap, and not part of what is timed.
  Status Prepare();
  // Append what was prepared.
  Status AppendSync(Durability durability);
  Result<Ticket> Append(Durability durability);

  Branch& branch() { return branch_; }
  uint64_t length() const { return length_; }
  const KvView& view() const { return *view_; }

 private:
  Writer(Branch branch, const KvPool* pool, uint64_t first_token, uint64_t tokens);

  Branch branch_;
  std::unique_ptr<KvCursor> cursor_;  // Null: tokens alone.
  std::vector<TokenId> ids_;
  uint64_t length_ = 0;
  const KvView* view_ = nullptr;
};

// Appends what the log keeps in memory, so that later measurements reuse memory like a store that
// has run for long. The first touch of a page can cost more than the append: on a virtual machine
// that hands free memory back to its host, 2 s a GiB were seen.
Status FillHotTail(Store& store, Writer& writer, const Options& options);

// Runs `work` in a child process, which ends as in a crash; returns the result of `work`. The
// process must have one thread.
Result<std::vector<double>> InChild(const std::function<Result<std::vector<double>>()>& work);

AppendOptions AppendAt(Durability durability);
BranchOptions UnnamedAt(Durability durability);
Delta TokenDelta(std::span<const TokenId> tokens, const KvView* kv = nullptr);

// The token at a position of every benchmark's branch.
constexpr TokenId TokenAt(uint64_t position) {
  return static_cast<TokenId>((position * 2654435761u) % 128'000);
}

}  // namespace cairn::bench
