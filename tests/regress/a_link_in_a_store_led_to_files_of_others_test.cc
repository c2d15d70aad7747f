// SPDX-License-Identifier: Apache-2.0
//
// The bug: in a directory that came from elsewhere, as from an archive, a symbolic link in the
// place of a file was followed: opening the store overwrote what HINT or MANIFEST-2.tmp named, made
// what LOCK named, and read tables from anywhere. Method: each file and directory of a store, and
// each name that a store would make, becomes a link to a file outside, to nothing, and to a
// directory outside; children open it, use it, copy it and mend it. Nothing outside changes, and
// where a link is met it is refused by name; also where openat2 is refused.
#include <seccomp.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/engine/engine_test.h"
#include "tests/support/child.h"

namespace cairn::testing {
namespace {

namespace fs = std::filesystem;

constexpr unsigned kChildSeconds = 20;

std::string Slurp(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class ALinkInAStore : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_ASSIGN(Store store, Store::Open(whole_, TinyOptions()));
    ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(WideModel()));
    ASSERT_OK_ASSIGN(Branch branch, store.CreateBranch(id, {.name = "chat"}));
    ASSERT_OK(AppendSome(branch, WideModel(), 0, 64));
    ASSERT_OK(store.Compact());
    ASSERT_OK(AppendSome(branch, WideModel(), 64, 8));
    ASSERT_OK(store.Close());
  }

  // What a store has, and what it would make: relative to it.
  std::vector<fs::path> Names() const {
    std::vector<fs::path> names = {"log", "tables", "probe.tmp", "OPTIONS.tmp", "MANIFEST-99.tmp"};
    for (const auto& entry : fs::recursive_directory_iterator(whole_)) {
      if (entry.is_regular_file()) names.push_back(fs::relative(entry.path(), whole_));
    }
    for (int number = 1; number < 9; ++number) {
      names.push_back("MANIFEST-" + std::to_string(number) + ".tmp");
    }
    return names;
  }

  // A copy of the store in which `name` is a link, beside a file and a directory outside.
  void Spoil(const fs::path& name, const fs::path& target) {
    fs::remove_all(In("spoilt"));
    fs::remove_all(In("outside"));
    fs::remove_all(In("copy"));
    fs::create_directories(In("outside/directory"));
    std::ofstream(In("outside/file")) << std::string(100'000, 'p');
    fs::copy(whole_, In("spoilt"), fs::copy_options::recursive);
    fs::remove_all(In("spoilt") / name);
    fs::create_symlink(In("outside") / target, In("spoilt") / name);
  }
  ::testing::AssertionResult OutsideIsAsItWas() const {
    if (Slurp(In("outside/file")) != std::string(100'000, 'p')) {
      return ::testing::AssertionFailure() << "the file outside was written to";
    }
    if (fs::exists(In("outside/none"))) return ::testing::AssertionFailure() << "a file was made";
    if (!fs::is_empty(In("outside/directory"))) {
      return ::testing::AssertionFailure() << "something was made in the directory outside";
    }
    return ::testing::AssertionSuccess();
  }
  fs::path In(const std::string& name) const { return fs::path(directory_.path()) / name; }

  // Whatever comes of it: opens, reads, writes and copies.
  Status UseSpoilt(const Options& options) const {
    CAIRN_ASSIGN_OR_RETURN(Store store, Store::Open(In("spoilt"), options));
    CAIRN_ASSIGN_OR_RETURN(Branch chat, store.FindBranch("chat"));
    const auto had = HasKv(chat, WideModel(), 0, 72);
    if (options.read_only) {
      return had ? Status() : Status(StatusCode::kIoError, had.message());
    }
    CAIRN_RETURN_IF_ERROR(AppendSome(chat, WideModel(), 72, 64).status());
    CAIRN_RETURN_IF_ERROR(store.Compact());
    CAIRN_RETURN_IF_ERROR(store.Checkpoint(In("copy")).status());
    if (!had) return Status(StatusCode::kIoError, had.message());
    return store.Close();
  }

  const TempDirectory directory_;
  const std::string whole_ = directory_.path() + "/whole";
};

TEST_F(ALinkInAStore, LeadsNowhere) {
  uint64_t refused = 0, cases = 0;
  for (const bool without_openat2 : {false, true}) {
    for (const fs::path& name : Names()) {
      for (const char* target : {"file", "none", "directory"}) {
        // Once is enough to show that nothing hangs on that call.
        if (without_openat2 && target != std::string("none")) continue;
        for (const bool read_only : {false, true}) {
          SCOPED_TRACE(name.string() + " -> " + target + (read_only ? ", read only" : ""));
          ASSERT_NO_FATAL_FAILURE(Spoil(name, target));
          Options options = TinyOptions();
          options.read_only = read_only;
          options.create_if_missing = !read_only;
          EXPECT_TRUE(InChild([&] {
            alarm(kChildSeconds);
            if (without_openat2 && !Refuse(SCMP_SYS(openat2), ENOSYS)) return false;
            const Status status = UseSpoilt(options);
            return Expect(status.ok() || status.message().find("link") != std::string_view::npos,
                          status.ToString());
          }));
          EXPECT_TRUE(OutsideIsAsItWas());
          ++cases;
          refused += Store::Open(In("spoilt"), options).ok() ? 0 : 1;
        }
      }
    }
  }
  EXPECT_GT(2 * refused, cases) << "only spares and tables are not looked at by an opening";
}

// As are directories of others, and the store's own path.
TEST_F(ALinkInAStore, MayLeadToTheStore) {
  fs::create_directory_symlink(whole_, In("link"));
  fs::create_directory_symlink(directory_.path(), In("above"));
  for (const fs::path& path : {In("link"), In("above/whole"), In("above/link")}) {
    ASSERT_OK_ASSIGN(Store store, Store::Open(path, TinyOptions()));
    ASSERT_OK_ASSIGN(Branch chat, store.FindBranch("chat"));
    EXPECT_TRUE(HasKv(chat, WideModel(), 0, 72));
    ASSERT_OK(store.Compact());
    fs::remove_all(In("copy"));
    EXPECT_OK(store.Checkpoint(In("above/copy")).status());
    ASSERT_OK(store.Close());
  }
}

// A table that becomes a link while the store is open.
TEST_F(ALinkInAStore, IsNotCopied) {
  ASSERT_OK_ASSIGN(Store store, Store::Open(whole_, TinyOptions()));
  fs::create_directories(In("outside"));
  for (const auto& entry : fs::directory_iterator(fs::path(whole_) / "tables")) {
    const fs::path moved = In("outside") / entry.path().filename();
    fs::rename(entry.path(), moved);
    fs::create_symlink(moved, entry.path());
  }
  const Status status = store.Checkpoint(In("copy")).status();
  EXPECT_TRUE(Fails(status, StatusCode::kIoError, "symbolic link"));
  EXPECT_FALSE(fs::exists(In("copy")));
}

}  // namespace
}  // namespace cairn::testing
