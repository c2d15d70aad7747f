// SPDX-License-Identifier: Apache-2.0
//
// Property: threads may use a store, a branch and a record at once: readers see whole appends with
// the right bytes, and each write is applied once.
// Method: real threads that append, restore, fork and drop against each other for a while.
#include <thread>

#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

class ConcurrencyTest : public WorldTest {};
INSTANTIATE_TEST_SUITE_P(Worlds, ConcurrencyTest, ::testing::ValuesIn([] {
                           std::vector<std::string> names = TestWorld::Names();
                           std::erase(names, "simulated");
                           return names;
                         }()),
                         NameOf);

// A restore may come between the moment a record has its place and the moment its bytes are
// written.
TEST_P(ConcurrencyTest, ReadersBesideAWriter) {
  const ModelSpec model = WideModel();
  Branch chat = Create(Register(model), "chat");
  std::atomic<bool> stop{false};
  std::vector<std::thread> readers;
  for (int i = 0; i < 2; ++i) {
    readers.emplace_back([&] {
      while (!stop.load()) {
        const auto length = chat.length();
        EXPECT_OK(length);
        const uint64_t begin = *length > 16 ? *length - 16 : 0;
        const ::testing::AssertionResult same = HasKv(chat, model, begin, *length);
        EXPECT_TRUE(same);
        EXPECT_OK(chat.ReadTokens(begin, *length));
        if (!same) break;
      }
    });
  }
  for (uint64_t i = 0; i < 150; ++i) {
    ASSERT_OK(AppendSome(chat, model, 8 * i, 8, kSeed,
                         i % 16 == 0 ? Durability::kPower : Durability::kMemory));
  }
  stop = true;
  for (std::thread& reader : readers) reader.join();
}

TEST_P(ConcurrencyTest, ManyWritersOnTheirBranches) {
  const ModelSpec model = TinyModel();
  const ModelId id = Register(model);
  std::vector<std::thread> writers;
  for (int i = 0; i < 8; ++i) {
    writers.emplace_back([&, i] {
      auto made = store_.CreateBranch(id, {.name = "w" + std::to_string(i)});
      EXPECT_OK(made);
      for (uint64_t at = 0; at < 120; at += 3) {
        EXPECT_OK(AppendSome(*made, model, at, 3, static_cast<uint64_t>(i),
                             static_cast<Durability>(at % 3)));
        if (at % 30 == 0) {
          auto fork = made->ForkAt(at / 2, {});
          EXPECT_OK(fork);
          EXPECT_TRUE(HasKv(*fork, model, 0, at / 2, static_cast<uint64_t>(i)));
          EXPECT_OK(fork->Drop());
        }
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 8; ++i) {
      EXPECT_TRUE(HasKv(Find("w" + std::to_string(i)), model, 0, 120, static_cast<uint64_t>(i)));
    }
    Reopen();
  }
}

// Two writers that race for one branch with expected_length: every position is written once.
TEST_P(ConcurrencyTest, ExpectedLengthDecidesARace) {
  Branch chat = Create(Register(TokenModel()), "chat");
  std::atomic<uint64_t> won{0};
  std::vector<std::thread> writers;
  for (TokenId me = 0; me < 4; ++me) {
    writers.emplace_back([&, me] {
      while (true) {
        const uint64_t length = *chat.length();
        if (length >= 300) return;
        AppendOptions options;
        options.expected_length = length;
        const std::vector<TokenId> tokens = {me};
        const auto appended = chat.AppendSync(MakeDelta(tokens), options);
        if (appended.ok()) {
          won.fetch_add(1);
        } else {
          EXPECT_FAILS(appended, StatusCode::kConflict);
        }
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(won.load(), *chat.length());
}

}  // namespace
}  // namespace cairn::testing
