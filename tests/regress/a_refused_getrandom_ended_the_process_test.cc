// SPDX-License-Identifier: Apache-2.0
//
// The bugs: where a sandbox refuses getrandom the opening of a store aborted the process; and where
// signals interrupt fallocate for ever it never returned. Method: children under seccomp filters.
#include <seccomp.h>
#include <unistd.h>

#include "tests/engine/engine_test.h"
#include "tests/support/child.h"

namespace cairn::testing {
namespace {

constexpr unsigned kChildSeconds = 60;

TEST(ARefusedSystemCall, OfRandomNumbersIsAnError) {
  const TempDirectory directory;
  EXPECT_TRUE(InChild([&] {
    if (!Expect(Refuse(SCMP_SYS(getrandom), EPERM), "no seccomp")) return false;
    const Status status = Store::Open(directory.path() + "/store", TinyOptions()).status();
    return Expect(status.code() == StatusCode::kIoError &&
                      status.message().find("getrandom") != std::string_view::npos,
                  status.ToString());
  }));
}

// A process may lock itself in when all is open.
TEST(ARefusedSystemCall, OfRandomNumbersLaterIsNone) {
  const TempDirectory directory;
  EXPECT_TRUE(InChild([&] {
    auto store = Store::Open(directory.path() + "/store", TinyOptions());
    if (!Expect(store.ok(), store.status().ToString())) return false;
    if (!Expect(Refuse(SCMP_SYS(getrandom), EPERM), "no seccomp")) return false;
    const auto id = store->RegisterModel(WideModel());
    auto chat = store->CreateBranch(id.value(), {.name = "chat"});
    const Status used = AppendSome(*chat, WideModel(), 0, 64).status();
    const Status copied = store->Checkpoint(directory.path() + "/copy").status();
    return Expect(used.ok() && copied.ok(), used.ToString() + "; " + copied.ToString());
  }));
}

TEST(ARefusedSystemCall, ThatIsInterruptedForEverEnds) {
  const TempDirectory directory;
  EXPECT_TRUE(InChild([&] {
    alarm(kChildSeconds);
    if (!Expect(Refuse(SCMP_SYS(fallocate), EINTR), "no seccomp")) return false;
    const Status status = Store::Open(directory.path() + "/store", TinyOptions()).status();
    return Expect(status.code() == StatusCode::kIoError &&
                      status.message().find("fallocate") != std::string_view::npos,
                  status.ToString());
  }));
}

}  // namespace
}  // namespace cairn::testing
