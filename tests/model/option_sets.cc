// SPDX-License-Identifier: Apache-2.0
#include <functional>

#include "tests/model/runner.h"
#include "tests/support/test_store.h"

namespace cairn::testing {

const std::vector<OptionSet>& OptionSets() {
  static const std::vector<OptionSet> sets = [] {
    std::vector<OptionSet> made;
    const auto add = [&](const char* name, const char* world,
                         const std::function<void(OptionSet*)>& change) {
      OptionSet set{.name = name, .world = world, .options = TinyOptions()};
      set.options.index = Index::kPrefix;
      change(&set);
      made.push_back(std::move(set));
    };
    const auto join = [](uint32_t tokens) {
      return [tokens](OptionSet* set) { set->options.delta_batch_tokens = tokens; };
    };
    const auto replay = [](uint64_t records) {
      return [records](OptionSet* set) { set->options.replay_records_max = records; };
    };
    const auto forget = [](OptionSet* set) {
      set->options.tree_memory_bytes = 0;
      set->options.replay_records_max = 40;
    };
    const auto seal = [](OptionSet* set) {
      set->options.snapshot_interval_tokens = 8;
      set->options.max_delta_chain = 4;
      set->options.log_bytes_max = 1 << 20;
    };
    const auto tiny_memory = [](OptionSet* set) {
      set->options.max_memory_bytes = 16 << 20;
      set->options.hot_tail_bytes = 256 << 10;
      set->options.tree_memory_bytes = 1 << 10;
    };
    const auto level = [](Durability at_least) {
      return [at_least](OptionSet* set) { set->at_least = at_least; };
    };
    const auto everything = [=](OptionSet* set) {
      join(8)(set);
      forget(set);
      seal(set);
      tiny_memory(set);
    };
    const auto nothing = [](OptionSet*) {};

    add("plain", "simulated", nothing);
    add("join 2", "simulated", join(2));
    add("join 8", "simulated", join(8));
    add("join 64", "simulated", join(64));
    add("join 3, late", "simulated", [&](OptionSet* set) {
      join(3)(set);
      set->options.delta_batch_wait_ns = 1'000'000'000;
    });
    add("borrow all", "simulated", [](OptionSet* set) { set->options.submit_copy_max_bytes = 0; });
    add("replay 1", "simulated", replay(1));
    add("replay 7", "simulated", replay(7));
    add("replay 100", "simulated", replay(100));
    add("forget", "simulated", forget);
    add("forget, join 8", "simulated", [&](OptionSet* set) {
      forget(set);
      join(8)(set);
    });
    add("seal", "simulated", seal);
    add("seal, forget", "simulated", [&](OptionSet* set) {
      seal(set);
      forget(set);
    });
    add("seal slowly", "simulated", [&](OptionSet* set) {
      seal(set);
      set->options.background_bytes_per_second = 64 << 10;
    });
    add("tiny memory", "simulated", tiny_memory);
    add("tiny memory, replay 7", "simulated", [&](OptionSet* set) {
      tiny_memory(set);
      replay(7)(set);
    });
    add("large segments", "simulated", [](OptionSet* set) {
      set->options.segment_bytes = 4 << 20;
      set->options.log_bytes_max = 16 << 20;
    });
    add("odd segments", "simulated", [](OptionSet* set) {
      set->options.segment_bytes = (256 << 10) + 12 * 4096;
      set->options.spare_segments_max = 1;
    });
    add("many spares", "simulated", [](OptionSet* set) {
      set->options.spare_segments_min = 4;
      set->options.spare_segments_max = 8;
    });
    add("one thread", "simulated", [](OptionSet* set) { set->options.executor_threads = 1; });
    add("written", "simulated", level(Durability::kProcess));
    add("durable", "simulated", level(Durability::kPower));
    add("capped", "simulated", [](OptionSet* set) {
      set->options.max_bytes = 16 << 20;
      set->options.log_bytes_max = 1 << 20;
    });
    add("no index", "simulated", [](OptionSet* set) { set->options.index = Index::kNone; });
    add("everything", "simulated", everything);
    add("memory", "memory", nothing);
    add("memory, join 8", "memory", join(8));
    add("memory, forget", "memory", forget);
    add("memory, seal", "memory", seal);
    add("memory, 4 threads", "memory", [](OptionSet* set) { set->options.executor_threads = 4; });
    add("memory, everything", "memory", everything);
    add("disk", "threads", nothing);
    add("disk, everything", "threads", everything);
    return made;
  }();
  return sets;
}

}  // namespace cairn::testing
