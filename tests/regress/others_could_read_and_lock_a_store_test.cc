// SPDX-License-Identifier: Apache-2.0
//
// The bug: files were 0644 and directories 0755, so that every user of the machine could read
// conversations; and who opened a store to read it took a shared lock for an instant, which kept a
// writer out. Now files are 0600 and directories 0700 whatever the umask says, unless
// Options::file_mode says otherwise, and a reader only asks. Method: the modes of every file of a
// store and of its copy under several umasks; a lock that is taken at once while others ask without
// end.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "base/io/file_util.h"
#include "tests/engine/engine_test.h"
#include "tests/support/child.h"

namespace cairn::testing {
namespace {

namespace fs = std::filesystem;

// Files with other modes than these, by name.
std::string WrongModes(const std::string& path, mode_t file, mode_t directory) {
  std::string wrong;
  const auto look = [&](const fs::path& at) {
    struct stat status;
    if (stat(at.c_str(), &status) != 0) return;
    const mode_t want = S_ISDIR(status.st_mode) ? directory : file;
    if ((status.st_mode & 07777) != want) wrong += at.string() + " ";
  };
  look(path);
  for (const auto& entry : fs::recursive_directory_iterator(path)) look(entry.path());
  return wrong;
}

bool HasModes(const std::string& path, uint32_t file_mode, mode_t umask_bits, mode_t directory) {
  umask(umask_bits);
  Options options = TinyOptions();
  options.file_mode = file_mode;
  auto store = Store::Open(path, options);
  if (!Expect(store.ok(), store.status().ToString())) return false;
  const ModelSpec model = WideModel();
  Branch chat = store->CreateBranch(store->RegisterModel(model).value(), {.name = "chat"}).value();
  bool ok = AppendSome(chat, model, 0, 64).ok() && store->Compact().ok();
  ok = ok && store->Checkpoint(path + ".copy").ok() && store->Close().ok();
  const std::string wrong =
      WrongModes(path, file_mode, directory) + WrongModes(path + ".copy", file_mode, directory);
  return Expect(ok, "a call failed") && Expect(wrong.empty(), wrong);
}

TEST(OthersOfTheMachine, CannotReadAStore) {
  const TempDirectory directory;
  for (const mode_t umask_bits : {0, 022, 0077, 0777}) {
    const std::string path = directory.path() + "/state" + std::to_string(umask_bits);
    EXPECT_TRUE(InChild([&] { return HasModes(path, 0600, umask_bits, 0700); })) << umask_bits;
  }
}

TEST(OthersOfTheMachine, CanWhenAnOptionSaysSo) {
  const TempDirectory directory;
  EXPECT_TRUE(InChild([&] { return HasModes(directory.path() + "/a", 0640, 0077, 0750); }));
  EXPECT_TRUE(InChild([&] { return HasModes(directory.path() + "/b", 0664, 0, 0775); }));
  Options options = TinyOptions();
  for (const uint32_t mode : {0u, 0400u, 0640u | 0100u, 01600u, 0644u | 0111u}) {
    options.file_mode = mode;
    EXPECT_TRUE(Fails(options.Validate(), StatusCode::kInvalidArgument, "file_mode"));
  }
}

// The files of a store are as they are, also when others would be made in another way.
TEST(OthersOfTheMachine, KeepTheirModeOverAnOpening) {
  const TempDirectory directory;
  const std::string path = directory.path() + "/state";
  ASSERT_OK(Store::Open(path, TinyOptions()));
  ASSERT_EQ(0, chmod((path + "/OPTIONS").c_str(), 0640));
  ASSERT_OK(Store::Open(path, TinyOptions()));
  struct stat status;
  ASSERT_EQ(0, stat((path + "/OPTIONS").c_str(), &status));
  EXPECT_EQ(mode_t{0640}, status.st_mode & 07777);
}

TEST(OthersOfTheMachine, DoNotKeepAWriterOut) {
  const TempDirectory directory;
  const io::World world = io::MakeRealWorld(io::IoBackend::kThreads).value();
  const std::string path = directory.path() + "/LOCK";
  ASSERT_OK(world.files->Lock(path));
  std::atomic<bool> over{false};
  std::thread asking([&] {
    while (!over) EXPECT_OK(world.files->IsLocked(path));
  });
  // Whichever way a writer takes it: nobody has it.
  for (int round = 0; round < 2000 && !HasFailure(); ++round) {
    const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
    struct flock whole{};
    whole.l_type = F_WRLCK;
    EXPECT_EQ(0, fcntl(fd, F_OFD_SETLK, &whole)) << "round " << round;
    EXPECT_EQ(0, flock(fd, LOCK_EX | LOCK_NB)) << "round " << round;
    close(fd);
  }
  over = true;
  asking.join();
}

}  // namespace
}  // namespace cairn::testing
