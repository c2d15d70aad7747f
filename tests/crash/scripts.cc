// SPDX-License-Identifier: Apache-2.0
#include "tests/crash/scripts.h"

#include <malloc.h>

#include "base/core/check.h"
#include "tests/support/test_store.h"

namespace cairn::crash {
namespace {

constexpr Durability kMemory = Durability::kMemory, kProcess = Durability::kProcess,
                     kPower = Durability::kPower;

void Nothing(Options&) {}

// Opens the store and puts two branches into it.
bool Begin(ScriptRun& run) {
  if (!run.Open()) return false;
  run.Create("a");
  run.Create("b", false, kProcess);
  return true;
}

}  // namespace

Options SmallOptions() {
  Options options = testing::TinyOptions();
  options.spare_segments_max = 1;
  options.max_memory_bytes = 16 << 20;
  options.hot_tail_bytes = 256 << 10;
  options.executor_threads = 1;
  return options;
}

std::vector<Script> Scripts() {
  std::vector<Script> scripts;
  const auto add = [&](const char* name, std::function<void(Options&)> configure,
                       std::function<void(ScriptRun&)> body) {
    const Start start = scripts.empty() ? Start::kNothing : Start::kMade;
    scripts.push_back({name, std::move(configure), std::move(body), start});
  };
  add("create", Nothing, [](ScriptRun& run) {
    if (!run.Open()) return;
    run.Create("a");
    run.Create("mixed", true);
    run.Close();
  });
  add("append", Nothing, [](ScriptRun& run) {
    if (!Begin(run)) return;
    for (const Durability level : {kMemory, kPower, kProcess, kMemory, kPower, kMemory}) {
      run.Append("a", 3, level, 1);
    }
    run.Look();
  });
  add(
      "coalesced", [](Options& options) { options.delta_batch_tokens = 4; },
      [](ScriptRun& run) {
        if (!Begin(run)) return;
        run.AppendCoalesced("a", 6, kPower);
        run.AppendCoalesced("b", 3, kProcess);
        run.Append("a", 2, kPower);
        run.Look();
      });
  add(
      "parts", [](Options& options) { options.submit_copy_max_bytes = 4096; },
      [](ScriptRun& run) {
        if (!Begin(run)) return;
        run.Append("a", 150, kPower, 0, true);
        run.Append("b", 100, kMemory, 0, true);
        run.Append("a", 1, kPower);
        run.Look();
      });
  add("fill", Nothing, [](ScriptRun& run) {
    if (!Begin(run)) return;
    run.Append("a", 20, kPower, 20);
    run.FillAll("a");
    run.Append("a", 5, kPower, 3);
    run.FillAll("a");
    run.Flush();
    run.Look();
  });
  add("tree", Nothing, [](ScriptRun& run) {
    if (!Begin(run)) return;
    run.Append("a", 8, kPower);
    run.Fork("a", 5, "c");
    run.Append("c", 2, kMemory);
    run.Rewind("a", 6);
    run.Rename("b", "d");
    run.Drop("a");
    run.Append("c", 2, kPower);
    run.Look();
  });
  add("batch", Nothing, [](ScriptRun& run) {
    if (!Begin(run)) return;
    run.Append("b", 4, kMemory);
    run.WriteBoth("b", "a");
    run.Create("a");
    run.WriteBoth("a", "b");
    run.Look();
  });
  add("draft", Nothing, [](ScriptRun& run) {
    if (!Begin(run)) return;
    run.CommitDraft("a", 5);
    run.CommitDraft("a", 1);
    run.Look();
  });
  add("compact", Nothing, [](ScriptRun& run) {
    if (!Begin(run)) return;
    run.Append("a", 30, kPower);
    run.Append("b", 10, kMemory);
    run.Call(run.store().Compact());
    run.Look();
    run.Append("a", 2, kPower);
    run.Call(run.store().Compact());
    run.Close();
  });
  add("rewrite", Nothing, [](ScriptRun& run) {
    if (!Begin(run)) return;
    run.Append("a", 60, kPower);
    run.Append("b", 60, kPower);
    run.Call(run.store().Compact());
    run.Rewind("a", 5);
    run.Rewind("b", 20);
    run.Call(run.store().Compact());
    run.Look();
    run.Append("a", 2, kPower);
  });
  add("joined nodes", Nothing, [](ScriptRun& run) {
    if (!Begin(run)) return;
    run.Append("a", 10, kPower);
    run.Fork("a", 8, "c");
    run.Append("c", 4, kPower);
    run.Drop("a");
    run.Call(run.store().Compact());
    run.Rewind("c", 9);
    run.Look();
  });
  add(
      "rest", [](Options& options) { options.log_bytes_max = 4 * options.segment_bytes; },
      [](ScriptRun& run) {
        if (!Begin(run)) return;
        for (int i = 0; i < 6; ++i) {
          run.Append(i == 3 ? "b" : "a", 2200, kProcess);
          if (i == 2) run.Rewind("a", 10);
        }
        run.Drop("a");  // Before idle time packs what rests.
        run.Sleep();
        run.Append("b", 3, kPower);
      });
  add("evict", Nothing, [](ScriptRun& run) {
    if (!Begin(run)) return;
    run.Call(run.store().SetNamespace("", {.max_bytes = 30'000, .evict = Evict::kKv}));
    run.Append("a", 100, kPower);
    run.Append("b", 100, kPower);
    run.Append("a", 100, kPower);
    run.Look();
    run.FillAll("b");
  });
  add("quota", Nothing, [](ScriptRun& run) {
    if (!Begin(run)) return;
    run.Call(run.store().SetNamespace("", {.max_bytes = 20'000}));
    run.Append("a", 100, kPower);
    run.Append("b", 100, kPower);
    run.Drop("a");
    run.Append("b", 10, kPower);
    run.Look();
  });
  add("checkpoint", Nothing, [](ScriptRun& run) {
    if (!Begin(run)) return;
    run.Append("a", 30, kMemory);
    run.Call(run.store().Compact());
    run.Append("b", 5, kMemory);
    run.Copy("copy");
    run.Append("b", 5, kPower);
  });
  add("follower", Nothing, [](ScriptRun& run) {
    if (!Begin(run)) return;
    run.Append("a", 30, kPower);
    run.Follow();
    run.Call(run.store().Compact());
    run.Append("b", 5, kPower);
    run.Follow();
  });
  add("read the log", Nothing, [](ScriptRun& run) {
    if (!Begin(run)) return;
    run.Append("a", 40, kPower);
    run.Close();
    if (run.Open()) run.Look();
  });
  add("read tables", Nothing, [](ScriptRun& run) {
    if (!Begin(run)) return;
    run.Append("a", 40, kPower);
    run.Append("b", 40, kPower);
    run.Call(run.store().Compact());
    run.Close();
    if (!run.Open()) return;
    const auto branch = run.store().FindBranch("a");
    run.Call(branch.status());
    if (branch.ok()) run.Call(branch->Prefetch());
    run.Look();
    run.Look();
  });
  add(
      "reopen", [](Options& options) { options.replay_records_max = 2; },
      [](ScriptRun& run) {
        if (!Begin(run)) return;
        for (int i = 0; i < 3; ++i) {
          run.Append("a", 3, kMemory);
          run.Append("b", 2, kPower);
          run.Close();
          if (!run.Open()) return;
        }
        run.Look();
      });
  add("read only", Nothing, [](ScriptRun& run) {
    if (!Begin(run)) return;
    run.Append("a", 10, kPower);
    run.Close();
    run.options().create_if_missing = false;
    run.options().read_only = true;
    if (!run.Open()) return;
    run.Look();
    run.Call(run.store().Refresh().status());
    run.Close();
  });
  add("mixed", Nothing, [](ScriptRun& run) {
    if (!Begin(run)) return;
    run.Create("m", true);
    run.Append("m", 9, kPower);
    run.Append("m", 4, kMemory, 1);
    run.Fork("m", 9, "n");
    run.Call(run.store().Compact());
    run.Append("m", 3, kPower);
    run.Look();
  });
  add("after a crash", Nothing, [](ScriptRun& run) {
    for (int attempt = 0; attempt < 3 && !run.Open(); ++attempt) run.Sleep();
    run.Append("a", 4, kPower);
    run.Look();
    run.Close();
    if (!run.Open()) return;
    run.Append("b", 2, kPower);
    run.Look();
  });
  scripts.back().start = Start::kCrashed;
  add(
      "read after a crash",
      [](Options& options) {
        options.create_if_missing = false;
        options.read_only = true;
      },
      [](ScriptRun& run) {
        if (!run.Open()) return;
        run.Look();
        run.Call(run.store().Refresh().status());
        run.Close();
      });
  scripts.back().start = Start::kCrashed;
  return scripts;
}

Starts::Starts() {
  {
    const io::SimWorld machine = io::MakeSimWorld(1);
    Options options = SmallOptions();
    options.world = std::make_shared<const io::World>(machine.world());
    auto store = Store::Open("store", options);
    CAIRN_CHECK(store.ok());
    for (const ModelSpec& model : {TinyModel(), MixedModel()}) {
      CAIRN_CHECK(store->RegisterModel(model).ok());
    }
    CAIRN_CHECK(store->Close().ok());
    made_ = machine.disk->CrashClone(io::CrashChoice::KeepAll());
  }
  const io::SimWorld machine = io::CrashWorld(*made_, io::CrashChoice::KeepAll(), true);
  ScriptRun run(machine, SmallOptions(), {StoreState()}, true, false);
  run.Live([](ScriptRun& live) {
    if (!Begin(live)) return;
    live.Append("a", 20, kPower);
    live.Call(live.store().Compact());
    live.Append("b", 6, kPower);
    for (int i = 0; i < 4; ++i) live.Append(i % 2 == 0 ? "a" : "b", 3, kProcess);
  });
  CAIRN_CHECK(!run.met_refusal() && run.first_possible() + 1 < run.states());
  for (size_t i = run.first_possible(); i < run.states(); ++i) {
    crashed_states_.push_back(run.state(i));
  }
  constexpr uint64_t kTornSeed = 5;
  crashed_ =
      machine.disk->CrashClone({.seed = kTornSeed, .lost = 0.2, .torn = 0.6, .kept_mask = {}});
}

io::SimWorld Starts::MachineFor(const Script& script) const {
  if (script.start == Start::kNothing) return io::MakeSimWorld(1);
  return io::CrashWorld(script.start == Start::kMade ? *made_ : *crashed_,
                        io::CrashChoice::KeepAll(), true);
}

std::vector<StoreState> Starts::StatesFor(const Script& script) const {
  return script.start == Start::kCrashed ? crashed_states_ : std::vector<StoreState>(1);
}

std::vector<std::string> ScriptNames() {
  std::vector<std::string> names;
  for (const Script& script : Scripts()) names.push_back(script.name);
  return names;
}

void KeepFreedMemory() {
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_TOP_PAD, 64 << 20);
}

}  // namespace cairn::crash
