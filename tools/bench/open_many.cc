// SPDX-License-Identifier: Apache-2.0
//
// open-many: what a store of --branches conversations costs to open, until the first one of them is
// restored, and in memory; beside a store of a hundredth of them, and after a crash.
//
// Each store is built and opened in child processes of their own, so that resident memory is the
// store's and nothing of it is warm but what the system keeps of files (the store reads directly).

#include <unistd.h>

#include <algorithm>
#include <random>
#include <vector>

#include "base/core/check.h"
#include "tools/bench/fixture.h"
#include "tools/bench/machine.h"

namespace cairn::bench {
namespace {

constexpr uint64_t kAppendTokens = 4;
constexpr uint64_t kRandomRestores = 1000;
constexpr uint64_t kAppendsToReplay = 10'000;  // Between the last MANIFEST and the crash.

std::string NameAt(uint64_t branch) { return "chat-" + std::to_string(branch); }

class ManyBranches {
 public:
  ManyBranches(const Config& config, std::string path, uint64_t branches)
      : config_(config), path_(std::move(path)), branches_(branches) {}

  Result<std::vector<double>> Build() const {
    CAIRN_ASSIGN_OR_RETURN(const ModelSpec spec, ModelOfTokenBytes(config_.branch_kv_bytes));
    std::unique_ptr<KvPool> pool;
    if (config_.branch_kv_bytes > 0) {
      pool = std::make_unique<KvPool>(spec, Layout::kNhd, kTokensPerBlock * 64, /*seed=*/1);
    }
    Options options;
    options.create_if_missing = true;
    options.segment_bytes = config_.segment_bytes;
    CAIRN_ASSIGN_OR_RETURN(Store store, Store::Open(path_, options));
    CAIRN_ASSIGN_OR_RETURN(const ModelId model, store.RegisterModel(spec));
    std::unique_ptr<KvCursor> cursor;
    if (pool != nullptr) cursor = std::make_unique<KvCursor>(*pool, 0);
    std::array<TokenId, kAppendTokens> ids{};
    Progress progress("open-many: " + std::to_string(branches_) + " branches", 100);
    for (uint64_t i = 0; i < branches_; ++i) {
      if (Interrupted()) return Status(StatusCode::kCancelled, "interrupted");
      CAIRN_ASSIGN_OR_RETURN(
          Branch branch,
          store.CreateBranch(model, {.name = NameAt(i), .durability = Durability::kMemory}));
      for (size_t t = 0; t < ids.size(); ++t) ids[t] = TokenAt(i + t);
      const KvView* view = cursor == nullptr ? nullptr : &cursor->At(0, ids.size());
      CAIRN_RETURN_IF_ERROR(
          branch.AppendSync(TokenDelta(ids, view), AppendAt(Durability::kMemory)).status());
      if ((i + 1) % std::max<uint64_t>(1, branches_ / 100) == 0) progress.Step();
    }
    CAIRN_RETURN_IF_ERROR(store.Close());
    return std::vector<double>();
  }

  // More appends to random branches, durable in the end; then the process ends without a word.
  Result<std::vector<double>> Crash() const {
    CAIRN_ASSIGN_OR_RETURN(Store store, Store::Open(path_, {}));
    std::mt19937_64 random(2);
    std::array<TokenId, kAppendTokens> ids{};
    for (uint64_t i = 0; i < kAppendsToReplay; ++i) {
      CAIRN_ASSIGN_OR_RETURN(Branch branch, store.FindBranch(NameAt(random() % branches_)));
      CAIRN_RETURN_IF_ERROR(
          branch.AppendSync(TokenDelta(ids), AppendAt(Durability::kMemory)).status());
    }
    CAIRN_RETURN_IF_ERROR(store.Flush());
    _exit(0);
  }

  // {ms of Open, ms until the first restore is done, MiB resident then, MiB after many restores,
  // their p50 and p99 in us, records replayed}
  Result<std::vector<double>> Open() const {
    CAIRN_ASSIGN_OR_RETURN(const ModelSpec spec, ModelOfTokenBytes(config_.branch_kv_bytes));
    std::unique_ptr<KvPool> pool;
    std::unique_ptr<KvCursor> cursor;
    if (config_.branch_kv_bytes > 0) {
      pool = std::make_unique<KvPool>(spec, Layout::kNhd, kTokensPerBlock * 4, /*seed=*/1);
      cursor = std::make_unique<KvCursor>(*pool, 0);
    }
    std::mt19937_64 random(1);
    std::vector<TokenId> ids(kAppendTokens);
    const auto restore = [&](Store& store) -> Status {
      CAIRN_ASSIGN_OR_RETURN(const Branch branch, store.FindBranch(NameAt(random() % branches_)));
      RestoreRequest request;
      request.end = kAppendTokens;
      request.tokens = ids;
      if (cursor != nullptr) request.into = &cursor->At(0, kAppendTokens);
      return branch.Restore(request).status();
    };
    const double begin = NowUs();
    CAIRN_ASSIGN_OR_RETURN(Store store, Store::Open(path_, {}));
    const double opened = NowUs();
    CAIRN_RETURN_IF_ERROR(restore(store));
    const double first = NowUs();
    const double rss = static_cast<double>(ResidentBytes());
    std::vector<double> restore_us;
    for (uint64_t i = 0; i < kRandomRestores; ++i) {
      const double start = NowUs();
      CAIRN_RETURN_IF_ERROR(restore(store));
      restore_us.push_back(NowUs() - start);
    }
    const double rss_after = static_cast<double>(ResidentBytes());
    const auto replayed = static_cast<double>(store.Metrics().replayed_records);
    CAIRN_RETURN_IF_ERROR(store.Close());
    return std::vector<double>{
        (opened - begin) / 1e3, (first - begin) / 1e3,      rss / kMiB, rss_after / kMiB,
        Median(restore_us),     Quantile(restore_us, 0.99), replayed};
  }

 private:
  static constexpr double kMiB = 1 << 20;
  const Config& config_;
  const std::string path_;
  const uint64_t branches_;
};

}  // namespace

Status RunOpenMany(const Config& config, const std::string& scratch, Report* report) {
  const uint64_t few_count = std::max<uint64_t>(1, config.branches / 100);
  const ManyBranches few(config, scratch + "/few", few_count);
  const ManyBranches many(config, scratch + "/many", config.branches);
  CAIRN_RETURN_IF_ERROR(InChild([&] { return few.Build(); }).status());
  const double begin = NowUs();
  CAIRN_RETURN_IF_ERROR(InChild([&] { return many.Build(); }).status());
  const double build_s = (NowUs() - begin) / 1e6;
  // In turns, so that a device that drifts meets both alike; the median of each figure.
  std::vector<std::vector<double>> opened_few(7), opened_many(7);
  for (uint32_t round = 0; round < config.rounds; ++round) {
    CAIRN_ASSIGN_OR_RETURN(const auto a, InChild([&] { return few.Open(); }));
    CAIRN_ASSIGN_OR_RETURN(const auto b, InChild([&] { return many.Open(); }));
    for (size_t i = 0; i < a.size(); ++i) opened_few[i].push_back(a[i]);
    for (size_t i = 0; i < b.size(); ++i) opened_many[i].push_back(b[i]);
  }
  CAIRN_RETURN_IF_ERROR(InChild([&] { return many.Crash(); }).status());
  CAIRN_ASSIGN_OR_RETURN(const auto crashed, InChild([&] { return many.Open(); }));
  CAIRN_ASSIGN_OR_RETURN(Store store, OpenStore(scratch + "/few", {}, report));  // To name its I/O.
  CAIRN_RETURN_IF_ERROR(store.Close());
  const auto many_is = [&](size_t i) { return Median(opened_many[i]); };
  const auto few_is = [&](size_t i) { return Median(opened_few[i]); };
  report->Value("branches", static_cast<double>(config.branches), "of four tokens, each named");
  report->Value("kv_bytes", static_cast<double>(config.branch_kv_bytes), "of a token");
  report->Value("build_s", build_s, "creating them at kMemory, closing the store included");
  report->Value("open_ms", many_is(1), "opening it, until the first branch is restored");
  report->Value("open_alone_ms", many_is(0), "the opening of that");
  report->Value("rss_mib", many_is(2), "resident then");
  report->Value("rss_restored_mib", many_is(3), "resident after 1000 random restores");
  report->Value("restore_p50_us", many_is(4), "one of these, found by name");
  report->Value("restore_p99_us", many_is(5), "its slow end");
  report->Value("replayed_records", many_is(6), "of the log, by opening");
  report->Value("few_open_ms", few_is(1), "the same with a hundredth of the branches");
  report->Value("few_rss_mib", few_is(2), "and its resident memory");
  report->Value("crashed_open_ms", crashed[1], "after a crash behind 10,000 further appends");
  report->Value("crashed_rss_mib", crashed[2], "resident then");
  report->Value("crashed_replayed_records", crashed[6], "of the log, by opening");
  std::vector<double> ratios, memory;
  for (size_t i = 0; i < opened_few[1].size(); ++i) {
    ratios.push_back(opened_many[1][i] / opened_few[1][i]);
    memory.push_back(opened_many[2][i] / opened_few[2][i]);
  }
  const auto ratio = [](const std::vector<double>& values) {
    return Ratio{Median(values), Quantile(values, 0), Quantile(values, 1)};
  };
  report->AddRatio("open_to_few", ratio(ratios), "1: the number of branches does not matter");
  report->AddRatio("rss_to_few", ratio(memory), "the same of resident memory");
  return Status::Ok();
}

}  // namespace cairn::bench
