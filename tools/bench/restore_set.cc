// SPDX-License-Identifier: Apache-2.0
//
// restore-set: sealed sessions that are restored one after the other, again and again: all of them
// fit into the page cache, or are 1.3 times what it holds, or there is next to no cache.

#include <filesystem>
#include <memory>

#include "base/core/align.h"
#include "base/core/check.h"
#include "tools/bench/fixture.h"
#include "tools/bench/load.h"
#include "tools/bench/machine.h"

namespace cairn::bench {
namespace {

constexpr uint64_t kTokenBytes = 128 << 10;
constexpr uint64_t kSessionBytes = 64 << 20;
constexpr uint64_t kMemoryBytes = 1 << 30;
constexpr uint64_t kAppendTokens = 16;
constexpr double kTooLarge = 1.3;

class RestoreSet {
 public:
  RestoreSet(const Config& config, std::string path, Report* report)
      : config_(config), path_(std::move(path)), report_(report) {}

  Status Run() {
    CAIRN_ASSIGN_OR_RETURN(const KvPool source, MakeSource(config_, kTokenBytes));
    pool_ = &source;
    into_ = std::make_unique<KvPool>(source.model(), source.layout(), session_tokens_, /*seed=*/2);
    ids_.resize(session_tokens_);
    const auto in_memory = static_cast<uint64_t>(kTooLarge * static_cast<double>(kMemoryBytes));
    CAIRN_RETURN_IF_ERROR(Fill(in_memory / session_bytes_ + 1));
    Load filled;
    uint64_t cache_bytes = 0;
    CAIRN_RETURN_IF_ERROR(Measure(kMemoryBytes, branches_.size(), &filled, &cache_bytes));
    const auto sessions =
        std::max<uint64_t>(2, static_cast<uint64_t>(kTooLarge * static_cast<double>(cache_bytes) /
                                                        static_cast<double>(session_bytes_) +
                                                    0.5));
    const uint64_t fits = std::max<uint64_t>(1, cache_bytes / session_bytes_ * 3 / 4);

    Load warm, large, off, copied;
    CAIRN_RETURN_IF_ERROR(Scatters(&copied));
    CAIRN_RETURN_IF_ERROR(Measure(kMemoryBytes, fits, &warm));
    CAIRN_RETURN_IF_ERROR(Measure(kMemoryBytes, sessions, &large));
    CAIRN_RETURN_IF_ERROR(Measure(kOffBytes, sessions, &off));
    report_->Value("cache_mib", static_cast<double>(cache_bytes) / (1 << 20), "of pages");
    report_->Value("sessions", static_cast<double>(sessions), "in the larger set");
    copied.Describe("memcpy", report_);
    warm.Describe("warm", report_);
    large.Describe("large", report_);
    off.Describe("off", report_);
    const double to_copy = warm.p(0.5) / copied.p(0.5), to_off = large.gb_per_s() / off.gb_per_s();
    report_->AddRatio("warm_to_memcpy", {1 / to_copy, 1 / to_copy, 1 / to_copy},
                      "all in the cache, to memcpy piece by piece; higher is better");
    report_->AddRatio("large_to_off", {to_off, to_off, to_off},
                      "1.3 times the cache, to next to no cache; higher is better");
    return Status::Ok();
  }

 private:
  static constexpr uint64_t kOffBytes = 160ull << 20;

  Options OptionsOf(uint64_t memory_bytes) const {
    Options options;
    options.max_memory_bytes = memory_bytes;
    options.hot_tail_bytes = std::min<uint64_t>(32 << 20, memory_bytes / 4);
    return options;
  }

  Status Fill(uint64_t sessions) {
    CAIRN_ASSIGN_OR_RETURN(Store store, OpenStore(path_, OptionsOf(kMemoryBytes), report_));
    CAIRN_ASSIGN_OR_RETURN(const ModelId model, store.RegisterModel(pool_->model()));
    Progress progress("filling", sessions);
    for (uint64_t i = 0; i < sessions; ++i, progress.Step()) {
      CAIRN_ASSIGN_OR_RETURN(auto writer, Writer::Create(store, model, pool_, 0, kAppendTokens));
      for (uint64_t at = 0; at < session_tokens_; at += kAppendTokens) {
        CAIRN_RETURN_IF_ERROR(writer->Prepare());
        CAIRN_RETURN_IF_ERROR(writer->AppendSync(Durability::kProcess));
      }
      branches_.push_back(writer->branch().id());
    }
    CAIRN_RETURN_IF_ERROR(store.Compact());
    return store.Close();
  }

  // The same pieces as a restore fills, out of memory that is as cold.
  Status Scatters(Load* load) {
    std::vector<Piece> from, to;
    KvCursor source(*pool_, 0), target(*into_, 0);
    std::vector<std::byte> canonical(session_bytes_);
    ListPieces(pool_->model(), source.At(0, session_tokens_), &from);
    ListPieces(pool_->model(), target.At(0, session_tokens_), &to);
    Gather(from, canonical.data());
    Work work;
    work.bytes_per_op = canonical.size();
    work.ops_per_thread = 20;
    work.op = [&](uint32_t, uint64_t) {
      Scatter(canonical.data(), to);
      return Status::Ok();
    };
    return load->Run(work);
  }

  // Round and round; twice before it is measured.
  Status Measure(uint64_t memory_bytes, uint64_t sessions, Load* load,
                 uint64_t* cache_bytes = nullptr) {
    CAIRN_ASSIGN_OR_RETURN(Store store, OpenStore(path_, OptionsOf(memory_bytes), report_));
    std::vector<Branch> all;
    for (uint64_t i = 0; i < sessions; ++i) {
      CAIRN_ASSIGN_OR_RETURN(all.emplace_back(), store.GetBranch(branches_[i]));
    }
    KvCursor target(*into_, 0);
    const KvView& view = target.At(0, session_tokens_);
    const auto restore = [&](uint64_t i) {
      RestoreRequest request;
      request.tokens = ids_;
      request.into = &view;
      return all[i % sessions].Restore(request).status();
    };
    for (uint64_t i = 0; i < 2 * sessions; ++i) CAIRN_RETURN_IF_ERROR(restore(i));
    Work work;
    work.bytes_per_op = session_bytes_;
    work.ops_per_thread = 3 * sessions;
    work.op = [&](uint32_t, uint64_t i) { return restore(i); };
    CAIRN_RETURN_IF_ERROR(load->Run(work));
    if (cache_bytes != nullptr) *cache_bytes = store.Metrics().page_cache_bytes;
    return store.Close();
  }

  const Config& config_;
  const std::string path_;
  Report* const report_;
  const uint64_t session_bytes_ =
      AlignUp(config_.session_bytes != 0 ? config_.session_bytes : kSessionBytes,
              kAppendTokens * kTokenBytes);
  const uint64_t session_tokens_ = session_bytes_ / kTokenBytes;
  const KvPool* pool_ = nullptr;
  std::unique_ptr<KvPool> into_;
  std::vector<TokenId> ids_;
  std::vector<BranchId> branches_;
};

}  // namespace

Status RunRestoreSet(const Config& config, const std::string& scratch, Report* report) {
  return RestoreSet(config, scratch + "/store", report).Run();
}

}  // namespace cairn::bench
