// SPDX-License-Identifier: Apache-2.0
//
// Property: opening a store of a mebibyte after a power cut costs so little CPU time that a
// simulation can afford thousands.
// Method: stores of that size, in the log or sealed, are opened again and again on a simulated disk
// that takes no time. The medians are printed; only that each opening finds everything is checked,
// since a busy machine is no bug.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <vector>

#include "tests/sim/store_state.h"
#include "tests/support/status.h"
#include "tests/support/test_store.h"

namespace cairn::sim {
namespace {

constexpr uint64_t kBytes = 1 << 20;
constexpr uint64_t kEach = 64;  // Positions an append.
constexpr int kRounds = 300;

Options SmallOptions(const io::SimWorld& machine) {
  Options options = testing::TinyOptions();
  options.max_memory_bytes = 16 << 20;
  options.hot_tail_bytes = 256 << 10;
  options.executor_threads = 1;
  options.snapshot_interval_tokens = 0;
  options.max_delta_chain = 0;
  options.world = std::make_shared<const io::World>(machine.world());
  return options;
}

double NowUs() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
}

void Measure(bool sealed) {
  mallopt(M_MMAP_THRESHOLD, 1 << 30);  // As in a long simulation, memory is allocated already.
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  const io::SimWorld machine = io::MakeSimWorld(1);
  uint64_t appends = 0;
  {
    ASSERT_OK_ASSIGN(Store store, Store::Open("store", SmallOptions(machine)));
    ASSERT_OK_ASSIGN(const ModelId model, store.RegisterModel(TinyModel()));
    ASSERT_OK_ASSIGN(Branch branch, store.CreateBranch(model, {.name = "a"}));
    std::vector<TokenId> tokens;
    const uint64_t each = kEach * (TinyModel().groups[0].token_bytes() + sizeof(TokenId));
    for (; appends * each < kBytes; ++appends) {
      KvMemory kv(TinyModel(), tokens.size(), kEach);
      for (uint64_t i = 0; i < kEach; ++i) tokens.push_back(static_cast<TokenId>(tokens.size()));
      kv.Fill(tokens);
      ASSERT_OK(branch.AppendSync({.tokens = std::span(tokens).last(kEach), .kv = kv.view()},
                                  {.durability = Durability::kPower}));
    }
    if (sealed) {
      ASSERT_OK(store.Compact());
    }
    // The writer is still there: nothing was closed.
    const auto crashed = machine.disk->CrashClone(io::CrashChoice::LoseAll());
    std::vector<double> opening, both;
    for (int round = 0; round < kRounds; ++round) {
      const io::SimWorld found = io::CrashWorld(*crashed, io::CrashChoice::KeepAll());
      const Options options = SmallOptions(found);
      const double begin = NowUs();
      {
        auto again = Store::Open("store", options);
        opening.push_back(NowUs() - begin);
        ASSERT_OK(again);
        const auto read = again->FindBranch("a");
        ASSERT_OK(read);
        ASSERT_EQ(appends * kEach, *read->length());
      }
      both.push_back(NowUs() - begin);
    }
    std::sort(opening.begin(), opening.end());
    std::sort(both.begin(), both.end());
    std::printf(
        "recovery of 1 MiB %s: %.0f us to open, %.0f us with closing (CPU, medians of %d)\n",
        sealed ? "in tables" : "in the log", opening[kRounds / 2], both[kRounds / 2], kRounds);
    ::testing::Test::RecordProperty(sealed ? "open_tables_us" : "open_log_us",
                                    std::to_string(opening[kRounds / 2]));
  }
}

TEST(RecoverySlow, OfAMebibyteInTheLog) { Measure(false); }
TEST(RecoverySlow, OfAMebibyteInTables) { Measure(true); }

}  // namespace
}  // namespace cairn::sim
