// SPDX-License-Identifier: Apache-2.0
//
// The raw side of a load: its bytes gathered and written durably by as many threads, each into a
// file of its own, without an index, checksums or ids.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tools/bench/load.h"
#include "tools/bench/raw.h"

namespace cairn::bench {

// Returns the token of the pool that thread `thread` of `threads` reads first. Each thread begins
// elsewhere, so that no thread finds its source in a cache that another one has filled. The result
// is a multiple of `tokens` and of a block: an append of `tokens` tokens does not cross the pool's
// end.
uint64_t FirstToken(const KvPool& pool, uint32_t thread, uint32_t threads, uint64_t tokens);

class RawLoad {
 public:
  // Files begin with `path`. Those of used blocks hold `used_bytes` each, or one append, and are
  // written here. The pool is the caller's.
  static Result<std::unique_ptr<RawLoad>> Create(const std::string& path, const KvPool& pool,
                                                 uint32_t threads, uint64_t tokens,
                                                 uint64_t used_bytes);
  RawLoad(const RawLoad&) = delete;
  RawLoad& operator=(const RawLoad&) = delete;
  ~RawLoad();  // Removes the files.

  // Chooses the fastest method by a short run of each. `work` says threads, bytes and operations.
  Status Choose(const Work& work);
  RawMethod method() const { return method_; }

  // Over blocks that were written before, round and round.
  Status WriteUsed(const Work& work, Load* load) { return Write(method_, work, used_, load); }
  // Into blocks that nobody has written yet, as those of a new store: files that are allocated
  // only. They are removed.
  Status WriteFresh(const Work& work, Load* load);

 private:
  using Files = std::vector<std::unique_ptr<RawFile>>;
  RawLoad(std::string path, const KvPool& pool, uint32_t threads, uint64_t tokens)
      : path_(std::move(path)), pool_(pool), threads_(threads), tokens_(tokens) {}
  uint64_t append_bytes() const { return tokens_ * pool_.model().token_bytes(); }
  Status MakeFiles(const std::string& name, uint64_t bytes, bool written, Files* files);
  Status Write(RawMethod method, Work work, const Files& files, Load* load);

  const std::string path_;
  const KvPool& pool_;
  const uint32_t threads_;
  const uint64_t tokens_;
  Files used_;
  RawMethod method_ = RawMethod::kWriteSync;
};

}  // namespace cairn::bench
