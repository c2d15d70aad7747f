// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/raw_load.h"

#include <algorithm>
#include <filesystem>

#include "base/core/align.h"
#include "base/core/check.h"

namespace cairn::bench {
namespace {

// A short run of a method: this many appends, or this much if that is less.
constexpr uint64_t kTriedAppends = 100, kTriedBytes = 256 << 20;

void RemoveAll(std::vector<std::unique_ptr<RawFile>>& files) {
  std::error_code ignored;
  for (const auto& file : files) std::filesystem::remove(file->path(), ignored);
  files.clear();
}

}  // namespace

uint64_t FirstToken(const KvPool& pool, uint32_t thread, uint32_t threads, uint64_t tokens) {
  const uint64_t step = std::max<uint64_t>(tokens, kTokensPerBlock);
  return pool.tokens() / threads * thread / step * step;
}

Result<std::unique_ptr<RawLoad>> RawLoad::Create(const std::string& path, const KvPool& pool,
                                                 uint32_t threads, uint64_t tokens,
                                                 uint64_t used_bytes) {
  std::unique_ptr<RawLoad> load(new RawLoad(path, pool, threads, tokens));
  const uint64_t each = AlignUp(std::max(used_bytes, load->append_bytes()), 4096);
  CAIRN_RETURN_IF_ERROR(load->MakeFiles("-used", each, /*written=*/true, &load->used_));
  return load;
}

RawLoad::~RawLoad() { RemoveAll(used_); }

Status RawLoad::MakeFiles(const std::string& name, uint64_t bytes, bool written, Files* files) {
  for (uint32_t i = 0; i < threads_; ++i) {
    CAIRN_ASSIGN_OR_RETURN(files->emplace_back(),
                           RawFile::Create(path_ + name + std::to_string(i), bytes, written));
  }
  return Status::Ok();
}

Status RawLoad::Write(RawMethod method, Work work, const Files& files, Load* load) {
  std::vector<std::unique_ptr<RawAppender>> appenders;
  for (uint32_t i = 0; i < threads_; ++i) {
    appenders.push_back(std::make_unique<RawAppender>(
        *files[i], method, pool_, FirstToken(pool_, i, threads_, tokens_), tokens_));
  }
  work.prepare = [&](uint32_t thread) { CAIRN_CHECK(appenders[thread]->arm().prepare().ok()); };
  work.op = [&](uint32_t thread, uint64_t) {
    double inner_us = 0;
    return appenders[thread]->arm().op(&inner_us);
  };
  return load->Run(work);
}

Status RawLoad::Choose(const Work& work) {
  Work short_work = work;
  const uint64_t appends =
      std::min(kTriedAppends, std::max<uint64_t>(1, kTriedBytes / threads_ / append_bytes()));
  short_work.ops_per_thread = std::min(work.ops_per_thread, appends);
  double best_rate = 0;
  for (const RawMethod method : kRawMethods) {
    // A ring belongs to the thread that made it.
    if (method == RawMethod::kRing && threads_ > 1) continue;
    if (!used_[0]->Supports(method)) continue;
    Load load;
    CAIRN_RETURN_IF_ERROR(Write(method, short_work, used_, &load));
    if (load.gb_per_s() <= best_rate) continue;
    best_rate = load.gb_per_s();
    method_ = method;
  }
  return Status::Ok();
}

Status RawLoad::WriteFresh(const Work& work, Load* load) {
  Files files;
  const uint64_t each = work.ops_per_thread * AlignUp(append_bytes(), 4096);
  CAIRN_RETURN_IF_ERROR(MakeFiles("-fresh", each, /*written=*/false, &files));
  const Status status = Write(method_, work, files, load);
  RemoveAll(files);
  return status;
}

}  // namespace cairn::bench
