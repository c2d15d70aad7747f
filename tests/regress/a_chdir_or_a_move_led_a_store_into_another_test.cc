// SPDX-License-Identifier: Apache-2.0
//
// The bug: files were opened by the path that the store was given. After a chdir() with a relative
// path, or when the directory was renamed and another store was made in its place, segments, tables
// and MANIFEST of one store were renamed into the other: what was acknowledged was gone, the other
// store destroyed, and Close was Ok. Method: the same with two stores, in a child process, on both
// real backends; all that each was given must be in it, and Verify must find nothing.
#include <unistd.h>

#include <filesystem>

#include "tests/engine/engine_test.h"
#include "tests/support/child.h"

namespace cairn::testing {
namespace {

// Some segments' worth, with what the background does.
constexpr uint64_t kRounds = 12, kTokensARound = 64;

class OneStoreAndAnother : public ::testing::TestWithParam<Backend> {
 protected:
  Options SmallOptions() const {
    Options options = TinyOptions();
    options.backend = GetParam();
    options.replay_records_max = 8;
    options.listener = {};
    return options;
  }

  // Makes a store of its own at `path`, and goes on with it.
  struct Used {
    Store store;
    Branch chat;
    uint64_t length = 0;
  };
  Result<Used> Make(const std::string& path) {
    Used used;
    CAIRN_ASSIGN_OR_RETURN(used.store, Store::Open(path, SmallOptions()));
    CAIRN_ASSIGN_OR_RETURN(const ModelId id, used.store.RegisterModel(WideModel()));
    CAIRN_ASSIGN_OR_RETURN(used.chat, used.store.CreateBranch(id, {.name = "chat"}));
    return used;
  }
  Status Go(Used& used, uint64_t seed) {
    for (uint64_t round = 0; round < kRounds; ++round) {
      const auto length = AppendSome(used.chat, WideModel(), used.length, kTokensARound, seed);
      CAIRN_RETURN_IF_ERROR(length.status());
      used.length = *length;
    }
    CAIRN_RETURN_IF_ERROR(used.store.Compact());
    return used.store.Close();
  }
  bool HasAll(const std::string& path, uint64_t seed) {
    auto store = Store::Open(path, SmallOptions());
    if (!Expect(store.ok(), path + ": " + store.status().ToString())) return false;
    const auto chat = store->FindBranch("chat");
    if (!Expect(chat.ok(), path + ": " + chat.status().ToString())) return false;
    const auto length = chat->length();
    if (!Expect(length.ok() && *length == kRounds * kTokensARound, path + ": tokens are lost")) {
      return false;
    }
    const auto kv = HasKv(*chat, WideModel(), 0, *length, seed);
    const auto verified = store->Verify(VerifyLevel::kAll);
    return Expect(bool{kv}, path + ": " + kv.message()) &&
           Expect(verified.ok() && verified->damages.empty(), path + ": Verify found something");
  }

  // In an empty directory of its own.
  void InAChild(const std::function<bool()>& body) {
    const TempDirectory directory;
    EXPECT_TRUE(InChild([&] { return chdir(directory.path().c_str()) == 0 && body(); }));
  }
};

INSTANTIATE_TEST_SUITE_P(, OneStoreAndAnother,
                         ::testing::Values(Backend::kUring, Backend::kThreads),
                         [](const auto& backend) {
                           return backend.param == Backend::kUring ? "Uring" : "Threads";
                         });

TEST_P(OneStoreAndAnother, AWorkingDirectoryThatChanges) {
  InAChild([&] {
    std::filesystem::create_directory("elsewhere");
    auto first = Make("state");
    if (!Expect(first.ok(), first.status().ToString())) return false;
    if (chdir("elsewhere") != 0) return false;
    auto second = Make("state");
    if (!Expect(second.ok(), second.status().ToString())) return false;
    const Status one = Go(*first, 1), other = Go(*second, 2);
    return Expect(one.ok() && other.ok(), one.ToString() + "; " + other.ToString()) &&
           HasAll("../state", 1) && HasAll("state", 2);
  });
}

TEST_P(OneStoreAndAnother, ADirectoryThatMoves) {
  InAChild([&] {
    auto first = Make("state");
    if (!Expect(first.ok(), first.status().ToString())) return false;
    std::filesystem::rename("state", "state.old");
    auto second = Make("state");
    if (!Expect(second.ok(), second.status().ToString())) return false;
    const Status one = Go(*first, 1), other = Go(*second, 2);
    return Expect(one.ok() && other.ok(), one.ToString() + "; " + other.ToString()) &&
           HasAll("state.old", 1) && HasAll("state", 2);
  });
}

// The copy's files are written one after the other, and in between the caller is called.
TEST_P(OneStoreAndAnother, ACopyWhileTheWorkingDirectoryChanges) {
  InAChild([&] {
    std::filesystem::create_directories("elsewhere/copy");
    auto used = Make("state");
    if (!Expect(used.ok(), used.status().ToString())) return false;
    for (uint64_t round = 0; round < kRounds; ++round) {
      const auto length = AppendSome(used->chat, WideModel(), used->length, kTokensARound, 1);
      if (!Expect(length.ok(), length.status().ToString())) return false;
      used->length = *length;
    }
    bool moved = false;
    const auto copied = used->store.Checkpoint("copy", [&](uint64_t, uint64_t) {
      if (!moved) moved = chdir("elsewhere") == 0;
    });
    return Expect(copied.ok(), copied.status().ToString()) && Expect(moved, "nothing was told") &&
           Expect(std::filesystem::is_empty("copy"), "some of the copy lies elsewhere") &&
           HasAll("../copy", 1);
  });
}

TEST_P(OneStoreAndAnother, AFollowerOfADirectoryThatWasReplaced) {
  InAChild([&] {
    auto first = Make("state");
    if (!Expect(first.ok(), first.status().ToString())) return false;
    if (const Status status = Go(*first, 1); !Expect(status.ok(), status.ToString())) return false;
    Options options = SmallOptions();
    options.create_if_missing = false;
    options.read_only = true;
    auto follower = Store::Open("state", options);
    if (!Expect(follower.ok(), follower.status().ToString())) return false;

    std::filesystem::rename("state", "state.old");
    auto moved = follower->Refresh();
    if (!Expect(moved.ok(), moved.status().ToString())) return false;
    auto again = Store::Open("state.old", SmallOptions());
    if (!Expect(again.ok(), again.status().ToString())) return false;
    Branch chat = again->FindBranch("chat").value();
    if (!AppendSome(chat, WideModel(), kRounds * kTokensARound, 1, 1).ok()) return false;
    if (!again->Flush().ok()) return false;  // Then a follower learns of it, too.
    moved = follower->Refresh();
    if (!Expect(moved.ok() && moved->changed, "it follows what was moved")) return false;

    const auto second = Make("state");
    if (!Expect(second.ok(), second.status().ToString())) return false;
    moved = follower->Refresh();
    return Expect(moved.status().code() == StatusCode::kInvalidState &&
                      moved.status().message().find("state") != std::string_view::npos,
                  moved.status().ToString());
  });
}

}  // namespace
}  // namespace cairn::testing
