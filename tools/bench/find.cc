// SPDX-License-Identifier: Apache-2.0
//
// find: prompts of --prompt-tokens ids, looked for among --tokens stored ids in --branches branches
// (find_set.h): confirmed, unconfirmed, with nothing in memory, and after a kill; beside a radix
// tree over the same ids in memory (radix_tree.h). Every answer is compared with what the data set
// says. KV is left out: no part of a search reads it.

#include <unistd.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "base/core/check.h"
#include "tools/bench/find_set.h"
#include "tools/bench/fixture.h"
#include "tools/bench/machine.h"
#include "tools/bench/radix_tree.h"
#include "tools/bench/work_counter.h"

namespace cairn::bench {
namespace {

constexpr uint64_t kPrompts = 48;      // Asked for in turns; three of them are unknown.
constexpr uint64_t kColdPrompts = 16;  // Each by an opening of its own.
constexpr uint64_t kAppends = 4000;    // Appends of 16 tokens, to measure an append's cost.
constexpr uint64_t kAppendBlocks = 40;
constexpr uint64_t kAppendTokens = 16;
constexpr double kCompleteUs = 600e6;  // Then it does not come.

Options OptionsOf(const Config& config) {
  Options options;
  options.segment_bytes = config.segment_bytes;
  options.reuse_memory_bytes = config.reuse_memory_bytes;
  return options;
}

class FindBench {
 public:
  FindBench(const Config& config, std::string path)
      : config_(config),
        path_(std::move(path)),
        set_({.tokens = config.find_tokens,
              .branches = static_cast<uint32_t>(config.branches),
              .prompt_tokens = config.prompt_tokens}) {
    for (uint64_t n = 0; n < kPrompts; ++n) prompts_.push_back(set_.MakePrompt(n));
  }

  // In a process of its own, which ends without closing the store: a crash.
  Result<std::vector<double>> Build() const {
    CAIRN_ASSIGN_OR_RETURN(const ModelSpec spec, ModelOfTokenBytes(0));
    Options options = OptionsOf(config_);
    options.create_if_missing = true;
    CAIRN_ASSIGN_OR_RETURN(Store store, Store::Open(path_, options));
    CAIRN_ASSIGN_OR_RETURN(const ModelId model, store.RegisterModel(spec));
    std::vector<Branch> made;
    made.reserve(set_.branches().size());
    Progress progress("find: " + std::to_string(set_.branches().size()) + " branches", 100);
    const BranchOptions unnamed = UnnamedAt(Durability::kMemory);
    for (uint32_t i = 0; i < set_.branches().size(); ++i) {
      if (Interrupted()) return Status(StatusCode::kCancelled, "interrupted");
      const FindSet::Branch& one = set_.branches()[i];
      auto branch = one.parent == FindSet::kNoParent ? store.CreateBranch(model, unnamed)
                                                     : made[one.parent].ForkAt(one.begin, unnamed);
      CAIRN_RETURN_IF_ERROR(branch.status());
      const std::vector<TokenId> ids = set_.OwnIds(i);
      CAIRN_RETURN_IF_ERROR(
          branch->AppendSync(TokenDelta(ids), AppendAt(Durability::kMemory)).status());
      made.push_back(std::move(*branch));
      if ((i + 1) % std::max<size_t>(1, set_.branches().size() / 100) == 0) progress.Step();
    }
    CAIRN_RETURN_IF_ERROR(store.Flush());
    _exit(0);
  }

  // First of all in this process: memory that the allocator uses again is in no count.
  void MakeTree() {
    const double resident_before = static_cast<double>(ResidentBytes());
    tree_ = std::make_unique<RadixTree>();
    std::vector<RadixTree::Node*> ends;
    ends.reserve(set_.branches().size());
    for (uint32_t i = 0; i < set_.branches().size(); ++i) {
      const FindSet::Branch& one = set_.branches()[i];
      RadixTree::Node* const from =
          one.parent == FindSet::kNoParent ? tree_->root() : ends[one.parent];
      ends.push_back(tree_->Insert(from, one.begin, set_.OwnIds(i), i + 1));
    }
    tree_bytes_ = static_cast<double>(ResidentBytes()) - resident_before;
  }

  // Behind the kill: until the answer is complete, and then the same as ever.
  Status AfterKill(Report* report) {
    const double begin = NowUs();
    CAIRN_ASSIGN_OR_RETURN(Store store, OpenStore(path_, OptionsOf(config_), report));
    const double opened = NowUs();
    CAIRN_RETURN_IF_ERROR(UntilComplete(store));
    report->Value("killed_open_ms", (opened - begin) / 1e3, "opening after a kill");
    report->Value("killed_complete_ms", (NowUs() - opened) / 1e3,
                  "from there until answers are complete");
    CAIRN_RETURN_IF_ERROR(CheckAll(store));
    CAIRN_RETURN_IF_ERROR(store.Compact());
    return store.Close();
  }

  // The index goes with who opens a store for writing without it, so what opening costs is compared
  // read only.
  Status Cold(Report* report) {
    std::vector<double> plain_us, hinted_us, open_us, find_us;
    const auto timed = [&](bool read_only, bool indexed, std::vector<double>* us,
                           const std::function<Status(Store&)>& then) -> Status {
      DropFileCaches(path_);
      Options options = OptionsOf(config_);
      options.read_only = read_only;
      if (!indexed) options.index = Index::kNone;
      const double begin = NowUs();
      CAIRN_ASSIGN_OR_RETURN(Store store, Store::Open(path_, options));
      us->push_back(NowUs() - begin);
      CAIRN_RETURN_IF_ERROR(then(store));
      return store.Close();
    };
    const auto nothing = [](Store&) { return Status::Ok(); };
    for (uint64_t n = 0; n < kColdPrompts; ++n) {
      CAIRN_RETURN_IF_ERROR(timed(true, false, &plain_us, nothing));
      CAIRN_RETURN_IF_ERROR(timed(true, true, &hinted_us, nothing));
      CAIRN_RETURN_IF_ERROR(timed(false, true, &open_us, [&](Store& store) {
        const double begin = NowUs();
        const Status asked = Ask(store, prompts_[n], true);
        find_us.push_back(NowUs() - begin);
        return asked;
      }));
    }
    report->Value("cold_p50_us", Median(find_us), "the first search of an opening");
    report->Value("cold_max_us", Quantile(find_us, 1), "the slowest of them");
    report->Value("open_ms", Median(open_us) / 1e3, "opening for writing, with the index");
    const double ratio = Median(hinted_us) / Median(plain_us);
    report->AddRatio("open_to_without", {ratio, ratio, ratio},
                     "opening read only with the index, to that without it");
    return Status::Ok();
  }

  Status Warm(Report* report) {
    CAIRN_ASSIGN_OR_RETURN(Store store, Store::Open(path_, OptionsOf(config_)));
    const double opened = NowUs();
    while (store.Metrics().hint_filter_filled == 0) {
      if (Interrupted()) return Status(StatusCode::kCancelled, "interrupted");
    }
    report->Value("filter_ms", (NowUs() - opened) / 1e3, "until the filter in memory is filled");
    CAIRN_RETURN_IF_ERROR(CheckAll(store));
    std::array<uint64_t, 3> next{};
    const auto turn = [&](size_t arm) -> const FindSet::Prompt& {
      return prompts_[next[arm]++ % kPrompts];
    };
    Arm confirmed{.name = "confirmed", .op = [&](double*) { return Ask(store, turn(0), true); }};
    Arm unconfirmed{.name = "unconfirmed",
                    .op = [&](double*) { return Ask(store, turn(1), false); }};
    Arm radix{.name = "radix", .op = [&](double*) { return AskTree(turn(2)); }};
    CAIRN_RETURN_IF_ERROR(RunInterleaved(config_, "find", {&confirmed, &unconfirmed, &radix}));
    report->Value("find_p50_us", confirmed.p50_us(), "FindPrefix, warm, every id compared");
    report->Value("find_p99_us", Quantile(confirmed.op_us, 0.99), "its slow end");
    report->Value("unconfirmed_p50_us", unconfirmed.p50_us(), "the same by hashes alone");
    report->Value("radix_p50_us", radix.p50_us(),
                  "a radix tree in memory, as SGLang keeps one, written anew in C++");
    const StoreMetrics metrics = store.Metrics();
    const auto tokens = static_cast<double>(set_.tokens());
    report->Value("hint_memory_per_token", static_cast<double>(metrics.hint_bytes) / tokens,
                  "bytes of memory of the index for each stored token");
    report->Value("radix_memory_per_token", tree_bytes_ / tokens, "the same of the radix tree");
    report->AddRatio("find_to_radix", RatioOfP50(confirmed, radix), "time; below 1: less");
    CAIRN_RETURN_IF_ERROR(store.Close());
    tree_.reset();
    return Status::Ok();
  }

 private:
  Status UntilComplete(const Store& store) const {
    const double give_up = NowUs() + kCompleteUs;
    while (NowUs() < give_up) {
      if (Interrupted()) return Status(StatusCode::kCancelled, "interrupted");
      CAIRN_ASSIGN_OR_RETURN(const PrefixHit hit, Find(store, prompts_[0], true));
      if (hit.complete) return Status::Ok();
    }
    return Status(StatusCode::kDeadlineExceeded, "the index of prefixes is not complete");
  }
  static Result<PrefixHit> Find(const Store& store, const FindSet::Prompt& prompt, bool confirm) {
    PrefixQuery query;
    query.model = store.Models().front().id;
    query.tokens = prompt.ids;
    query.confirm = confirm;
    return store.FindPrefix(query);
  }
  // More than the whole blocks is found where no more than kPrefixCandidates nodes begin alike.
  static Status Ask(const Store& store, const FindSet::Prompt& prompt, bool confirm) {
    CAIRN_ASSIGN_OR_RETURN(const PrefixHit hit, Find(store, prompt, confirm));
    const uint64_t least = prompt.matched - prompt.matched % kPrefixBlock;
    if (hit.matched >= least && hit.matched <= prompt.matched) return Status::Ok();
    return Status(StatusCode::kCorruption, "found " + std::to_string(hit.matched) + " tokens of " +
                                               std::to_string(prompt.matched) +
                                               (hit.complete ? "" : ", not complete"));
  }
  Status CheckAll(const Store& store) const {
    for (const FindSet::Prompt& prompt : prompts_) {
      for (const bool confirm : {true, false}) {
        CAIRN_RETURN_IF_ERROR(Ask(store, prompt, confirm));
      }
    }
    return Status::Ok();
  }
  Status AskTree(const FindSet::Prompt& prompt) const {
    if (tree_->LongestMatch(prompt.ids).length == prompt.matched) return Status::Ok();
    return Status(StatusCode::kCorruption, "the radix tree found something else");
  }

  const Config& config_;
  const std::string path_;
  const FindSet set_;
  std::vector<FindSet::Prompt> prompts_;
  std::unique_ptr<RadixTree> tree_;
  double tree_bytes_ = 0;
};

// The cost of durable appends with an index and without one, in turns, and the cost of indexing
// them.
Status ReportAppends(const Config& config, const std::string& path, Report* report) {
  const WorkCounter counter;  // Counts threads that come later.
  CAIRN_ASSIGN_OR_RETURN(const ModelSpec spec, ModelOfTokenBytes(2048));
  CAIRN_ASSIGN_OR_RETURN(const KvPool pool, MakeSource(config, 2048));
  struct Side {
    Store store;
    std::unique_ptr<Writer> writer;
    std::vector<double> work;
  };
  std::array<Side, 2> sides;
  for (const bool indexed : {false, true}) {
    Options options = OptionsOf(config);
    options.create_if_missing = true;
    if (!indexed) options.index = Index::kNone;
    Side& side = sides[indexed];
    CAIRN_ASSIGN_OR_RETURN(side.store, Store::Open(path + (indexed ? "-on" : "-off"), options));
    CAIRN_ASSIGN_OR_RETURN(const ModelId model, side.store.RegisterModel(spec));
    CAIRN_ASSIGN_OR_RETURN(side.writer, Writer::Create(side.store, model, &pool, 0, kAppendTokens));
    CAIRN_RETURN_IF_ERROR(WaitForPool(side.store, 0));
  }
  for (uint64_t block = 0; block < kAppendBlocks; ++block) {
    for (Side& side : sides) {
      const uint64_t before = counter.Read();
      for (uint64_t i = 0; i < kAppends / kAppendBlocks; ++i) {
        CAIRN_RETURN_IF_ERROR(side.writer->Prepare());
        CAIRN_RETURN_IF_ERROR(side.writer->AppendSync(Durability::kPower));
      }
      side.work.push_back(static_cast<double>(counter.Read() - before) * kAppendBlocks / kAppends);
    }
  }
  const uint64_t before = counter.Read();
  PrefixQuery query;
  query.model = sides[1].store.Models().front().id;
  CAIRN_RETURN_IF_ERROR(sides[1].store.FindPrefix(query).status());
  report->Value("index_work_per_append", static_cast<double>(counter.Read() - before) / kAppends,
                std::string(counter.unit()) + " of the search that indexes them, each");
  report->Value("append_work", Median(sides[1].work),
                std::string(counter.unit()) + " of a durable append of 16 tokens with 2 KiB each");
  std::vector<double> ratios;
  for (size_t i = 0; i < kAppendBlocks; ++i) {
    ratios.push_back(sides[1].work[i] / sides[0].work[i]);
  }
  report->AddRatio("append_to_without", {Median(ratios), Quantile(ratios, 0), Quantile(ratios, 1)},
                   "beside a store without an index");
  for (Side& side : sides) CAIRN_RETURN_IF_ERROR(side.store.Close());
  return Status::Ok();
}

}  // namespace

Status RunFind(const Config& config, const std::string& scratch, Report* report) {
  FindBench bench(config, scratch + "/store");
  const double begin = NowUs();
  CAIRN_RETURN_IF_ERROR(InChild([&] { return bench.Build(); }).status());
  report->Value("tokens", static_cast<double>(config.find_tokens), "stored");
  report->Value("branches", static_cast<double>(config.branches), "that hold them");
  report->Value("build_s", (NowUs() - begin) / 1e6, "at kMemory, until the process is killed");
  bench.MakeTree();
  CAIRN_RETURN_IF_ERROR(bench.AfterKill(report));
  CAIRN_RETURN_IF_ERROR(bench.Cold(report));
  CAIRN_RETURN_IF_ERROR(bench.Warm(report));
  return ReportAppends(config, scratch + "/appends", report);
}

}  // namespace cairn::bench
