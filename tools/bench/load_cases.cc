// SPDX-License-Identifier: Apache-2.0
//
// load: new stores that are filled as a user's process does it, with glibc's malloc and the default
// options unless a case says otherwise, beside the same bytes gathered and written raw. The runs of
// both take turns, and every run of ours begins with a store that was just made.

#include <filesystem>
#include <memory>
#include <utility>

#include "base/core/check.h"
#include "tools/bench/fixture.h"
#include "tools/bench/machine.h"
#include "tools/bench/raw_load.h"

namespace cairn::bench {
namespace {

struct LoadCase {
  const char* name;
  uint32_t threads;
  uint64_t token_bytes;
  uint64_t tokens;         // An append.
  uint64_t total_bytes;    // KV bytes per run.
  uint64_t log_bytes_max;  // 0: the default.
  bool seals;              // False: the background is paused.
  // 0: one branch per thread. Else branches of this many, not durable until all is flushed.
  uint64_t appends_per_branch;
  bool forks;  // Each append goes to a new fork of one session.
};

constexpr uint64_t kGiB = 1ull << 30;
constexpr uint64_t kForkedTokens = 256;
constexpr uint32_t kRounds = 3;
constexpr LoadCase kCases[] = {
    {"burst", 1, 128 << 10, 16, 4 * kGiB, 8 * kGiB, true, 0, false},
    {"burst-alone", 1, 128 << 10, 16, 4 * kGiB, 8 * kGiB, false, 0, false},
    {"threads", 8, 128 << 10, 8, 4 * kGiB, 8 * kGiB, true, 0, false},
    {"endless", 1, 128 << 10, 16, 8 * kGiB, 0, true, 0, false},
    {"tokens-128k", 1, 128 << 10, 1, 5120ull * (128 << 10), 0, false, 0, false},
    {"tokens-8k", 1, 8 << 10, 1, 60'000ull * (8 << 10), 0, false, 0, false},
    {"tokens-128k-sealing", 1, 128 << 10, 1, 5120ull * (128 << 10), 256 << 20, true, 0, false},
    {"forks", 1, 128 << 10, 16, 1 * kGiB, 0, true, 0, true},
    {"sessions", 1, 8 << 10, 1, 80'000ull * (8 << 10), 0, true, 4, false},
};

// Views for many branches, of which each begins somewhere else in the pool, so that none finds its
// source in the processor's cache.
class Cursors {
 public:
  explicit Cursors(const KvPool& pool) {
    for (uint64_t token = 0; token < pool.tokens(); token += 2 * kTokensPerBlock) {
      all_.push_back(std::make_unique<KvCursor>(pool, token));
    }
  }
  const KvView& At(uint64_t op, uint64_t position, uint64_t count) {
    return all_[op % all_.size()]->At(position, count);
  }

 private:
  std::vector<std::unique_ptr<KvCursor>> all_;
};

class LoadRun {
 public:
  LoadRun(const LoadCase& one, const Config& config, std::string scratch, Report* report)
      : case_(one),
        config_(config),
        rounds_(config.load_rounds != 0 ? config.load_rounds : kRounds),
        scratch_(std::move(scratch)),
        report_(report) {}

  Status Go() {
    CAIRN_ASSIGN_OR_RETURN(const KvPool pool, MakeSource(config_, case_.token_bytes));
    pool_ = &pool;
    const uint64_t each = std::max<uint64_t>(config_.source_bytes / case_.threads, 16 << 20);
    CAIRN_ASSIGN_OR_RETURN(const auto raw, RawLoad::Create(scratch_ + "/raw", pool, case_.threads,
                                                           case_.tokens, each));
    CAIRN_RETURN_IF_ERROR(raw->Choose(NewWork()));
    report_->Text("raw_method", RawMethodName(raw->method()), "the fastest raw method of this run");
    Progress progress(case_.name, 3 * rounds_);
    for (uint32_t round = 0; round < rounds_; ++round) {
      CAIRN_RETURN_IF_ERROR(raw->WriteUsed(NewWork(), &raw_));
      progress.Step();
      CAIRN_RETURN_IF_ERROR(raw->WriteFresh(NewWork(), &raw_fresh_));
      progress.Step();
      CAIRN_RETURN_IF_ERROR(RunOurs());
      progress.Step();
    }
    Tell();
    return Status::Ok();
  }

 private:
  uint64_t append_bytes() const { return case_.tokens * case_.token_bytes; }
  uint64_t total_bytes() const {
    return config_.load_bytes != 0 ? std::min(config_.load_bytes, case_.total_bytes)
                                   : case_.total_bytes;
  }
  Work NewWork() const {
    Work work;
    work.threads = case_.threads;
    work.bytes_per_op = append_bytes();
    work.ops_per_thread = std::max<uint64_t>(8, total_bytes() / append_bytes() / case_.threads);
    return work;
  }

  uint64_t FirstTokenOf(uint32_t thread) const {
    return FirstToken(*pool_, thread, case_.threads, case_.tokens);
  }

  Status RunOurs() {
    const std::string path = scratch_ + "/store";
    Options options;
    if (case_.log_bytes_max != 0) options.log_bytes_max = case_.log_bytes_max;
    const double before = NowUs();
    CAIRN_ASSIGN_OR_RETURN(Store store, OpenStore(path, options, report_));
    open_ms_.push_back((NowUs() - before) * 1e-3);
    new_store_mib_.push_back(static_cast<double>(AllocatedBytes(path)) / (1 << 20));
    if (!case_.seals) CAIRN_RETURN_IF_ERROR(store.PauseBackground());
    CAIRN_RETURN_IF_ERROR(Append(store));
    if (!case_.seals) CAIRN_RETURN_IF_ERROR(Settle(store));
    CAIRN_RETURN_IF_ERROR(store.Close());
    std::filesystem::remove_all(path);
    return Status::Ok();
  }

  // How fast what the log holds becomes tables, while nothing else runs.
  Status Settle(Store& store) {
    CAIRN_RETURN_IF_ERROR(store.ResumeBackground());
    Work work;
    work.bytes_per_op = NewWork().ops_per_thread * append_bytes();
    work.ops_per_thread = 1;
    work.op = [&](uint32_t, uint64_t) { return store.Compact(); };
    return settled_.Run(work);
  }

  Status Append(Store& store) {
    CAIRN_ASSIGN_OR_RETURN(const ModelId model, store.RegisterModel(pool_->model()));
    if (case_.forks) return AppendToForks(store, model);
    if (case_.appends_per_branch != 0) return AppendToMany(store, model);
    std::vector<std::unique_ptr<Writer>> writers;
    for (uint32_t i = 0; i < case_.threads; ++i) {
      CAIRN_ASSIGN_OR_RETURN(writers.emplace_back(),
                             Writer::Create(store, model, pool_, FirstTokenOf(i), case_.tokens));
    }
    Work work = NewWork();
    work.prepare = [&](uint32_t thread) { CAIRN_CHECK(writers[thread]->Prepare().ok()); };
    work.op = [&](uint32_t thread, uint64_t) {
      return writers[thread]->AppendSync(Durability::kPower);
    };
    return ours_.Run(work);
  }

  Status AppendToForks(Store& store, ModelId model) {
    CAIRN_ASSIGN_OR_RETURN(auto root, Writer::Create(store, model, pool_, 0, kForkedTokens));
    CAIRN_RETURN_IF_ERROR(root->Prepare());
    CAIRN_RETURN_IF_ERROR(root->AppendSync(Durability::kPower));
    Cursors cursors(*pool_);
    std::vector<TokenId> ids(case_.tokens);
    Work work = NewWork();
    uint64_t op = 0;
    const KvView* view = nullptr;
    Branch fork;
    work.prepare = [&](uint32_t) {
      auto made = root->branch().ForkAt(kForkedTokens, UnnamedAt(Durability::kMemory));
      CAIRN_CHECK(made.ok());
      fork = *made;
      for (size_t i = 0; i < ids.size(); ++i) ids[i] = TokenAt(op + i);
      view = &cursors.At(op++, kForkedTokens, ids.size());
    };
    work.op = [&](uint32_t, uint64_t) {
      return fork.AppendSync(TokenDelta(ids, view), AppendAt(Durability::kPower)).status();
    };
    return ours_.Run(work);
  }

  // By turns: the first append of all branches, then the second.
  Status AppendToMany(Store& store, ModelId model) {
    Work work = NewWork();
    const uint64_t branches = work.ops_per_thread / case_.appends_per_branch;
    work.ops_per_thread = branches * case_.appends_per_branch;
    std::vector<Branch> all(branches);
    for (Branch& branch : all) {
      CAIRN_ASSIGN_OR_RETURN(branch, store.CreateBranch(model, UnnamedAt(Durability::kMemory)));
    }
    Cursors cursors(*pool_);
    std::vector<TokenId> ids(case_.tokens);
    const KvView* view = nullptr;
    uint64_t next = 0;
    work.prepare = [&](uint32_t) {
      const uint64_t position = next / branches * case_.tokens;
      for (size_t i = 0; i < ids.size(); ++i) ids[i] = TokenAt(next + i);
      view = &cursors.At(next++, position, ids.size());
    };
    work.op = [&](uint32_t, uint64_t op) {
      return all[op % branches]
          .AppendSync(TokenDelta(ids, view), AppendAt(Durability::kMemory))
          .status();
    };
    work.at_end = [&] { return store.Flush(); };
    return ours_.Run(work);
  }

  void Tell() {
    ours_.Describe("cairn", report_);
    raw_.Describe("raw", report_);
    raw_fresh_.Describe("raw_fresh", report_);
    if (!case_.seals) {
      report_->Value("settled_gb_per_s", settled_.gb_per_s(), "all of it sealed, after the run");
      report_->Value("settled_cpu_s_per_gb", settled_.cpu_s_per_gb(), "of that");
      report_->Value("settled_faults_per_gb", settled_.all_faults_per_gb(), "all of that");
      report_->Value("settled_to_raw", settled_.gb_per_s() / raw_.gb_per_s(), "of raw writes");
    }
    report_->Value("open_ms", Median(open_ms_), "opening a new store");
    report_->Value("new_store_mib", Median(new_store_mib_),
                   "its blocks before anything is appended");
    report_->AddRatio("rate_to_raw", RatioOfRates(ours_.rates(), raw_.rates()), "higher is better");
    report_->AddRatio("rate_to_raw_fresh", RatioOfRates(ours_.rates(), raw_fresh_.rates()),
                      "to blocks that nobody has written");
    constexpr std::pair<const char*, double> kQuantiles[] = {
        {"p50_to_raw", 0.5}, {"p95_to_raw", 0.95}, {"p99_to_raw", 0.99}};
    for (const auto& [name, quantile] : kQuantiles) {
      const double ratio = ours_.p(quantile) / raw_.p(quantile);
      report_->AddRatio(name, {ratio, ratio, ratio}, "lower is better");
    }
    const double longest = ours_.longest_us() / raw_.longest_us();
    report_->AddRatio("longest_to_raw", {longest, longest, longest}, "lower is better");
    report_->Value("cpu_s_per_gb_above_raw", ours_.cpu_s_per_gb() - raw_.cpu_s_per_gb(), "");
  }

  const LoadCase& case_;
  const Config& config_;
  const uint32_t rounds_;
  const std::string scratch_;
  Report* const report_;
  const KvPool* pool_ = nullptr;
  Load raw_, raw_fresh_, ours_, settled_;
  std::vector<double> open_ms_, new_store_mib_;
};

}  // namespace

Status RunLoad(const Config& config, const std::string& scratch, Report* report) {
  if (config.load_name == "ingest") return RunIngest(config, scratch, report);
  for (const LoadCase& one : kCases) {
    if (config.load_name == one.name) return LoadRun(one, config, scratch, report).Go();
  }
  std::string names = "ingest";
  for (const LoadCase& one : kCases) names += std::string(", ") + one.name;
  return Status(StatusCode::kInvalidArgument,
                "there is no load \"" + config.load_name + "\"; there are " + names);
}

}  // namespace cairn::bench
