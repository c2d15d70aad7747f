// SPDX-License-Identifier: Apache-2.0
//
// A store that a script of out_of_memory_scripts.cc works on while allocations fail, and what is
// looked at behind it.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/core/check.h"
#include "base/core/out_of_memory.h"
#include "cairn/store.h"
#include "sim/world.h"
#include "tests/memory/failing_new.h"
#include "tests/memory/whole_world.h"
#include "tests/support/kv_pool.h"
#include "tests/support/test_store.h"

namespace cairn::memory {

using testing::KvSet;
using testing::Layout;

inline constexpr char kPath[] = "/store";
inline constexpr uint64_t kSeed = 7;  // Generates all KV.

// Tokens by branch; KV follows from the position.
using Contents = std::map<std::string, std::vector<TokenId>>;

using Tune = std::function<void(Options*)>;

inline Options OomOptions(const io::World& world) {
  Options options = testing::TinyOptions();
  options.allocator = NewAllocator();
  options.max_memory_bytes = 16 << 20;
  options.hot_tail_bytes = 256 << 10;
  options.executor_threads = 1;
  options.submit_copy_max_bytes = 8 << 10;
  // All that a script appends. Where the log's thread finds no memory for another segment, calls
  // that need it are refused for a moment, and not only the one that is looked at.
  options.segment_bytes = 2 << 20;
  options.world = std::make_shared<const io::World>(world);
  return options;
}

struct Outcome {
  uint64_t allocations = 0, failed = 0, calls_failed = 0;
  bool poisoned = false;
  std::string violation;
};

// One store, one script, one plan.
class Session {
 public:
  explicit Session(std::shared_ptr<io::SimDisk> disk, Tune tune = {})
      : world_(MakeWholeWorld(std::move(disk), 1, &escaped_)), tune_(std::move(tune)) {}

  // --- For scripts ---
  using Call = std::function<Status()>;
  // Makes a call whose allocations may fail; `change` is what it does to the contents.
  void Do(const char* what, const Call& call, const std::function<void(Contents&)>& change = {}) {
    Contents after = contents_;
    if (change) change(after);
    DoSteps(what, call, {std::move(after)});
  }
  // The same for a call of several steps, each of which leads to other contents, and may fail.
  void DoSteps(const char* what, const Call& call, const std::vector<Contents>& steps) {
    Status status;
    {
      const FailingScope scope;
      try {
        status = call();
      } catch (const std::bad_alloc&) {
        SetFailing(false);
        return Violation(std::string("bad_alloc left ") + what);
      }
    }
    if (status.ok()) {
      contents_ = steps.back();
      return;
    }
    ++outcome_.calls_failed;
    const StatusCode code = status.code();
    const bool clear = code == StatusCode::kOutOfMemory || code == StatusCode::kBusy ||
                       code == StatusCode::kPoisoned || code == StatusCode::kUnknownOutcome ||
                       code == StatusCode::kIoError || code == StatusCode::kInvalidState ||
                       (evicts_ && code == StatusCode::kNoSpace);
    if (!clear) Violation(std::string(what) + ": " + status.ToString());
    if (!store_.core()) return;
    if (poisoned_ = !store_.poisoned().ok(); poisoned_) return;
    const Contents found = ReadAll(store_);
    if (found != contents_ && std::find(steps.begin(), steps.end(), found) == steps.end()) {
      Violation(std::string(what) + " failed and left something else");
    }
    contents_ = found;
  }
  Store& store() { return store_; }
  const io::World& world() const { return world_; }
  const ModelSpec& model() const { return model_; }
  const Contents& contents() const { return contents_; }
  // Must succeed when there is memory again.
  void After(Call call) { after_ = std::move(call); }
  // Without a failure the script has come to this.
  void MustHave(const char* what, uint64_t StoreMetrics::* count) {
    if (AllocationsFailed() == 0 && store_.Metrics().*count == 0) {
      Violation(std::string("nothing has ") + what);
    }
  }
  // From here on KV may be missing, and room.
  void Evicts() { evicts_ = true; }
  ModelId model_id() const { return model_id_; }
  bool poisoned() const { return poisoned_; }
  Branch Find(const std::string& name) {
    auto branch = store_.FindBranch(name);
    return branch.ok() ? *branch : Branch();
  }
  uint64_t Length(const std::string& name) { return contents_[name].size(); }
  // Tokens, KV and states behind the present end.
  void Append(const std::string& name, uint64_t count, Durability durability) {
    const Material m(*this, name, count);
    Branch branch = Find(name);
    Do(
        "AppendSync",
        [&] { return branch.AppendSync(m.delta, {.durability = durability}).status(); },
        m.Change());
  }
  // The same, with memory for all of it.
  void Grow(const std::string& name, uint64_t count) {
    const Material m(*this, name, count);
    CAIRN_CHECK(Find(name).AppendSync(m.delta).ok());
    m.Change()(contents_);
  }
  struct Material {
    Material(Session& session, const std::string& in_name, uint64_t count)
        : name(in_name),
          begin(session.Length(name)),
          tokens(testing::Tokens(count, begin + 1)),
          kv(session.model_, Layout::kContiguous, begin, count) {
      kv.Write(kSeed, begin, begin + count);
      sampler.generator = GeneratorKind::kPhilox;
      delta.tokens = tokens;
      delta.kv = kv.View(begin, count);
      delta.sampler = &sampler;
    }
    std::function<void(Contents&)> Change() const {
      return [this](Contents& contents) {
        auto& all = contents[name];
        all.insert(all.end(), tokens.begin(), tokens.end());
      };
    }
    const std::string name;
    const uint64_t begin;
    const std::vector<TokenId> tokens;
    KvSet kv;
    SamplerState sampler;
    Delta delta;
  };

  // --- The frame around them ---
  void Begin(const Contents& contents) {
    contents_ = contents;
    auto opened = Store::Open(kPath, MakeOptions());
    CAIRN_CHECK(opened.ok());
    store_ = std::move(*opened);
    model_id_ = *store_.RegisterModel(model_);
  }

  // The same for a store that the script opens.
  void Expect(const Contents& contents) { contents_ = contents; }

  Outcome Run(const std::function<void(Session&)>& script, const FailPlan& plan) {
    SetFailPlan(plan);
    script(*this);
    outcome_.allocations = AllocationsCounted();
    outcome_.failed = AllocationsFailed();
    SetFailPlan({});
    if (after_) {
      if (const Status status = after_(); !status.ok()) Violation("after: " + status.ToString());
    }
    if (!escaped_.empty()) Violation(escaped_);
    if (outcome_.violation.empty()) CheckAfter();
    return outcome_;
  }

  void OpenFresh() {
    auto opened = Store::Open(kPath, MakeOptions());
    if (!opened.ok()) return Violation("open after it: " + opened.status().ToString());
    store_ = std::move(*opened);
  }

  Contents ReadAll(const Store& store) {
    Contents found;
    const auto page = store.ListBranches("", "", SIZE_MAX);
    if (!page.ok()) {
      Violation("ListBranches after it: " + page.status().ToString());
      return found;
    }
    for (const BranchInfo& info : page->branches) {
      const auto branch = store.GetBranch(info.id);
      if (!branch.ok()) {
        Violation("GetBranch after it: " + branch.status().ToString());
        continue;
      }
      std::vector<TokenId>& tokens = found[info.name];
      tokens.resize(info.length);
      KvSet got(model_, Layout::kContiguous, 0, info.length);
      KvSet want(model_, Layout::kContiguous, 0, info.length);
      want.Write(kSeed, 0, info.length);
      RestoreRequest request;
      request.tokens = tokens;
      if (info.length != 0) request.into = got.View(0, info.length);
      auto restored = branch->Restore(request);
      if (evicts_ && restored.status().code() == StatusCode::kEvicted) {
        request.into = nullptr;
        restored = branch->Restore(request);
        if (!restored.ok()) Violation("Restore of tokens: " + restored.status().ToString());
        continue;
      }
      if (!restored.ok()) {
        Violation("Restore after it: " + restored.status().ToString());
      } else if (info.length != 0 && (restored->kv_ends[0] != info.length || !(got == want))) {
        Violation("wrong KV of " + info.name);
      }
    }
    return found;
  }

  void Violation(const std::string& what) {
    if (outcome_.violation.empty()) outcome_.violation = what;
  }

 private:
  Options MakeOptions() const {
    Options options = OomOptions(world_);
    if (tune_) tune_(&options);
    return options;
  }

  void CheckAfter() {
    if (!store_.core() || !store_.poisoned().ok()) {
      // A store that is not open, or that wants to be opened again.
      if (store_.core()) {
        outcome_.poisoned = store_.poisoned().code() == StatusCode::kPoisoned;
        static_cast<void>(store_.Close());
      }
      store_ = Store();
      OpenFresh();
    }
    if (!outcome_.violation.empty()) return;
    if (!poisoned_ && ReadAll(store_) != contents_) Violation("other contents after it");
    contents_ = ReadAll(store_);
    auto made = store_.RegisterModel(model_);
    if (!made.ok()) return Violation("RegisterModel after it: " + made.status().ToString());
    auto after = store_.CreateBranch(*made, {.name = "after"});
    if (!after.ok()) return Violation("CreateBranch after it: " + after.status().ToString());
    contents_["after"] = {};
    for (const auto& [name, tokens] : Contents(contents_)) {
      const uint64_t failed = outcome_.calls_failed;
      Append(name, 2, Durability::kPower);
      if (outcome_.calls_failed != failed) return Violation("an append after it fails");
    }
    if (const Status status = store_.Compact(); !status.ok()) {
      return Violation("Compact after it: " + status.ToString());
    }
    if (const Status status = store_.Close(); !status.ok()) {
      return Violation("Close after it: " + status.ToString());
    }
    store_ = Store();
    OpenFresh();
    if (!outcome_.violation.empty()) return;
    if (ReadAll(store_) != contents_) Violation("other contents after opening again");
    const auto report = store_.Verify(VerifyLevel::kAll);
    if (!report.ok()) return Violation("Verify: " + report.status().ToString());
    if (!report->damages.empty()) {
      return Violation("Verify: " + report->damages[0].where + ": " + report->damages[0].what);
    }
    if (const Status status = store_.Close(); !status.ok()) Violation(status.ToString());
    if (!escaped_.empty()) Violation(escaped_);
  }

  std::string escaped_;
  const io::World world_;
  const Tune tune_;
  const ModelSpec model_ = testing::TinyModel();
  ModelId model_id_{};
  Contents contents_;
  Outcome outcome_;
  Call after_;
  bool poisoned_ = false, evicts_ = false;
  Store store_;  // Goes before its world.
};

struct Script {
  std::string name;
  bool opened = true;  // The store is open when it begins.
  std::function<void(Session&)> run;
  Tune tune;
};

// All of them.
std::vector<Script> Scripts();

}  // namespace cairn::memory
