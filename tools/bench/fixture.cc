// SPDX-License-Identifier: Apache-2.0

#include "tools/bench/fixture.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "base/core/check.h"

namespace cairn::bench {

Result<Store> OpenStore(const std::string& path, Options options, Report* report) {
  options.create_if_missing = true;
  CAIRN_ASSIGN_OR_RETURN(Store store, Store::Open(path, options));
  report->Machine("io_backend", store.io_name());
  report->Machine("sync_method", store.sync_method());
  return store;
}

Status WaitForPool(const Store& store, uint64_t segments) {
  constexpr double kQuietUs = 20'000, kPatienceUs = 60e6;
  const double begin = NowUs();
  double quiet_since = begin;
  uint64_t written = store.Metrics().log_bytes_prewritten;
  while (NowUs() - begin < kPatienceUs) {
    if (Interrupted()) return Status(StatusCode::kCancelled, "interrupted");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const StoreMetrics metrics = store.Metrics();
    if (metrics.log_bytes_prewritten != written) {
      written = metrics.log_bytes_prewritten;
      quiet_since = NowUs();
    }
    const bool quiet = NowUs() - quiet_since >= kQuietUs;
    if (quiet && metrics.log_spare_segments >= segments) return Status::Ok();
  }
  return Status(StatusCode::kDeadlineExceeded,
                "log segments in stock: " + std::to_string(store.Metrics().log_spare_segments) +
                    " after a minute, expected " + std::to_string(segments));
}

Result<KvPool> MakeSource(const Config& config, uint64_t token_bytes) {
  CAIRN_ASSIGN_OR_RETURN(const ModelSpec model, ModelOfTokenBytes(token_bytes));
  CAIRN_ASSIGN_OR_RETURN(const Layout layout, ParseLayout(config.layout));
  const uint64_t tokens =
      std::max<uint64_t>(config.source_bytes / token_bytes, 4 * kTokensPerBlock);
  return KvPool(model, layout, tokens / kTokensPerBlock * kTokensPerBlock, /*seed=*/1);
}

Result<std::unique_ptr<Writer>> Writer::Create(Store& store, ModelId model, const KvPool* pool,
                                               uint64_t first_token, uint64_t tokens) {
  CAIRN_ASSIGN_OR_RETURN(Branch branch, store.CreateBranch(model));
  return std::unique_ptr<Writer>(new Writer(std::move(branch), pool, first_token, tokens));
}

Writer::Writer(Branch branch, const KvPool* pool, uint64_t first_token, uint64_t tokens)
    : branch_(std::move(branch)), ids_(tokens) {
  if (pool != nullptr) cursor_ = std::make_unique<KvCursor>(*pool, first_token);
}

Status Writer::Prepare() {
  for (size_t i = 0; i < ids_.size(); ++i) ids_[i] = TokenAt(length_ + i);
  if (cursor_ != nullptr) view_ = &cursor_->At(length_, ids_.size());
  return Status::Ok();
}

Status Writer::AppendSync(Durability durability) {
  CAIRN_ASSIGN_OR_RETURN(const uint64_t length,
                         branch_.AppendSync(TokenDelta(ids_, view_), AppendAt(durability)));
  length_ += ids_.size();
  CAIRN_CHECK(length == length_);
  return Status::Ok();
}

Result<Ticket> Writer::Append(Durability durability) {
  CAIRN_ASSIGN_OR_RETURN(Ticket ticket,
                         branch_.Append(TokenDelta(ids_, view_), AppendAt(durability)));
  length_ += ids_.size();
  return ticket;
}

Status FillHotTail(Store& store, Writer& writer, const Options& options) {
  const uint64_t begin = store.Metrics().log_bytes_written;
  while (store.Metrics().log_bytes_written - begin < options.hot_tail_bytes) {
    if (Interrupted()) return Status(StatusCode::kCancelled, "interrupted");
    CAIRN_RETURN_IF_ERROR(writer.Prepare());
    CAIRN_RETURN_IF_ERROR(writer.AppendSync(Durability::kProcess));
  }
  CAIRN_RETURN_IF_ERROR(store.Flush());
  return WaitForPool(store, 0);
}

Result<std::vector<double>> InChild(const std::function<Result<std::vector<double>>()>& work) {
  int ends[2];
  CAIRN_CHECK(pipe(ends) == 0);
  const pid_t child = fork();
  CAIRN_CHECK(child >= 0);
  if (child == 0) {
    close(ends[0]);
    const Result<std::vector<double>> result = work();
    const std::string error = result.ok() ? "" : result.status().ToString();
    const std::vector<double> values = result.ok() ? *result : std::vector<double>();
    const char* const bytes =
        result.ok() ? reinterpret_cast<const char*>(values.data()) : error.data();
    const size_t size = result.ok() ? values.size() * sizeof(double) : error.size();
    // Without values there are no bytes to point to.
    const bool told = size == 0 || write(ends[1], bytes, size) == static_cast<ssize_t>(size);
    _exit(!told ? 2 : result.ok() ? 0 : 1);  // Without closing what is open: a crash.
  }
  close(ends[1]);
  std::string said;
  char buffer[4096];
  for (ssize_t count = 0; (count = read(ends[0], buffer, sizeof(buffer))) > 0;) {
    said.append(buffer, static_cast<size_t>(count));
  }
  close(ends[0]);
  int status = 0;
  CAIRN_CHECK(waitpid(child, &status, 0) == child);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    return Status(StatusCode::kIoError, "a child process failed: " + said);
  }
  std::vector<double> values(said.size() / sizeof(double));
  if (!values.empty()) std::memcpy(values.data(), said.data(), values.size() * sizeof(double));
  return values;
}

AppendOptions AppendAt(Durability durability) {
  AppendOptions options;
  options.durability = durability;
  return options;
}

BranchOptions UnnamedAt(Durability durability) {
  BranchOptions options;
  options.durability = durability;
  return options;
}

Delta TokenDelta(std::span<const TokenId> tokens, const KvView* kv) {
  Delta delta;
  delta.tokens = tokens;
  delta.kv = kv;
  return delta;
}

}  // namespace cairn::bench
