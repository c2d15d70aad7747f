// SPDX-License-Identifier: Apache-2.0
//
// Property: without a fault or a crash every script does its job, so that what cuts and fails its
// operations meets that part of the engine.
#include "tests/crash/scripts.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace cairn::crash {
namespace {

using Count = uint64_t StoreMetrics::*;

TEST(Scripts, EachDoesWhatItIsNamedFor) {
  const std::map<std::string, std::vector<Count>> expected = {
      {"create", {&StoreMetrics::branches}},
      {"append", {&StoreMetrics::appends}},
      {"coalesced", {&StoreMetrics::appends}},
      {"parts", {&StoreMetrics::appends}},
      {"fill", {&StoreMetrics::filled_bytes}},
      {"tree", {&StoreMetrics::forks, &StoreMetrics::rewinds, &StoreMetrics::cut_nodes}},
      {"batch", {&StoreMetrics::drops}},
      {"draft", {&StoreMetrics::appends}},
      {"compact", {&StoreMetrics::seals, &StoreMetrics::retired_segments}},
      {"rewrite", {&StoreMetrics::seals, &StoreMetrics::rewritten_tables}},
      {"joined nodes", {&StoreMetrics::joined_nodes}},
      {"rest", {&StoreMetrics::drops, &StoreMetrics::seals, &StoreMetrics::retired_segments}},
      {"evict", {&StoreMetrics::evicted_bytes, &StoreMetrics::filled_bytes}},
      {"quota", {&StoreMetrics::drops}},
      {"checkpoint", {&StoreMetrics::seals}},
      {"follower", {&StoreMetrics::seals}},
      {"read the log", {&StoreMetrics::replayed_records, &StoreMetrics::restored_log_records}},
      {"read tables", {&StoreMetrics::prefetches, &StoreMetrics::restored_table_frames}},
      {"reopen", {&StoreMetrics::restores}},
      {"read only", {&StoreMetrics::replayed_records, &StoreMetrics::restores}},
      {"mixed", {&StoreMetrics::forks, &StoreMetrics::seals}},
      {"after a crash", {&StoreMetrics::replayed_records, &StoreMetrics::appends}},
      {"read after a crash", {&StoreMetrics::replayed_records, &StoreMetrics::restores}},
  };
  const Starts starts;
  for (const Script& script : Scripts()) {
    SCOPED_TRACE(script.name);
    Options options = SmallOptions();
    script.configure(options);
    ScriptRun run(starts.MachineFor(script), options, starts.StatesFor(script),
                  script.start != Start::kNothing, /*claim_memory=*/false);
    run.Live(script.body);
    EXPECT_EQ("", run.violation());
    EXPECT_EQ(script.name == std::string("quota"), run.met_refusal());
    EXPECT_EQ(script.name == std::string("checkpoint"), !run.copy().empty());
    const auto found = expected.find(script.name);
    ASSERT_NE(expected.end(), found);
    const StoreMetrics metrics = run.metrics();
    for (size_t i = 0; i < found->second.size(); ++i) {
      EXPECT_GT(metrics.*found->second[i], 0U) << "count " << i;
    }
  }
}

}  // namespace
}  // namespace cairn::crash
