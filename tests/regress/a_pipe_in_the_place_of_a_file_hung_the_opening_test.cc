// SPDX-License-Identifier: Apache-2.0
//
// The bug: a named pipe in the place of a file was opened as one, which waits for who writes to it:
// an opening, or the first restore, hung for ever, and no deadline helped.
// Method: each file of a store in turn becomes a pipe; a child opens and reads within some seconds.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "tests/engine/engine_test.h"
#include "tests/support/child.h"

namespace cairn::testing {
namespace {

constexpr unsigned kChildSeconds = 20;

class APipeInThePlaceOfAFile : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(, APipeInThePlaceOfAFile, ::testing::Bool(), [](const auto& read_only) {
  return read_only.param ? "ForReading" : "ForWriting";
});

TEST_P(APipeInThePlaceOfAFile, IsRefused) {
  const ModelSpec model = WideModel();
  const TempDirectory directory;
  const std::string path = directory.path() + "/store", spoilt = directory.path() + "/spoilt";
  {
    ASSERT_OK_ASSIGN(Store store, Store::Open(path, TinyOptions()));
    ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
    ASSERT_OK_ASSIGN(Branch branch, store.CreateBranch(id, {.name = "chat"}));
    ASSERT_OK(AppendSome(branch, model, 0, 64));
    ASSERT_OK(store.Compact());
    ASSERT_OK(AppendSome(branch, model, 64, 8));
    ASSERT_OK(store.Close());
  }
  Options options = TinyOptions();
  options.read_only = GetParam();
  options.create_if_missing = !options.read_only;
  uint64_t refused = 0;
  for (const auto& file : std::filesystem::recursive_directory_iterator(path)) {
    if (!file.is_regular_file()) continue;
    SCOPED_TRACE(file.path().string());
    std::filesystem::remove_all(spoilt);
    std::filesystem::copy(path, spoilt, std::filesystem::copy_options::recursive);
    const std::string pipe = spoilt / std::filesystem::relative(file.path(), path);
    ASSERT_EQ(0, unlink(pipe.c_str()));
    ASSERT_EQ(0, mkfifo(pipe.c_str(), 0600));
    ASSERT_TRUE(InChild([&] {
      alarm(kChildSeconds);
      auto store = Store::Open(spoilt, options);
      if (!store.ok()) {
        return Expect(store.status().message().find("regular file") != std::string_view::npos,
                      store.status().ToString());
      }
      const auto branch = store->FindBranch("chat");
      if (branch.ok()) static_cast<void>(HasKv(*branch, model, 0, 72));
      return true;
    }));
    refused += Store::Open(spoilt, options).ok() ? 0 : 1;
  }
  EXPECT_LT(3u, refused) << "MANIFEST, OPTIONS, the log and the index are read by the opening";
}

}  // namespace
}  // namespace cairn::testing
