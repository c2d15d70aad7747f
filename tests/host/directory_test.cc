// SPDX-License-Identifier: Apache-2.0
//
// Property: a store goes on in the directory that it was opened in, whatever becomes of the names
// that lead there, and on every file system that it may find itself on.
// Method: on the real kernel, in child processes: mounts over it, links, removal, other file
// systems. Tests that this machine does not allow are skipped by name.
#include <fcntl.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "tests/engine/engine_test.h"
#include "tests/host/host_store.h"
#include "tests/support/child.h"

namespace cairn::testing {
namespace {

namespace fs = std::filesystem;

class HostDirectory : public ::testing::Test {
 protected:
  std::string In(const std::string& name) const { return directory_.path() + "/" + name; }
  // In the directory, as its working directory.
  void InAChild(const std::function<bool()>& body) {
    EXPECT_TRUE(InChild([&] { return chdir(directory_.path().c_str()) == 0 && body(); }));
  }
  // The same with mounts of its own.
  void InAChildThatMounts(const std::function<bool()>& body) {
    if (!MayMount()) GTEST_SKIP() << "mounting is not allowed here";
    InAChild([&] { return EnterOwnMounts() && body(); });
  }
  TempDirectory directory_;
};

TEST_F(HostDirectory, AnotherIsMountedOverIt) {
  InAChildThatMounts([&] {
    fs::create_directory("other");
    auto host = HostStore::Open("state");
    if (!ExpectOk(host.status(), "open") || !ExpectOk(host->Append(), "append")) return false;
    if (mount("other", "state", nullptr, MS_BIND, nullptr) != 0) return Expect(false, "mount");
    if (!ExpectOk(host->DoEverything(), "below the mount")) return false;
    if (!ExpectOk(host->Close(), "close")) return false;
    return Expect(fs::is_empty("other"), "the other directory was written to") &&
           umount("state") == 0 && ExpectOk(CheckStore("state", host->length), "reopen");
  });
}

TEST_F(HostDirectory, ALinkTakesItsName) {
  InAChild([&] {
    fs::create_directory("other");
    auto host = HostStore::Open("state");
    if (!ExpectOk(host.status(), "open")) return false;
    fs::rename("state", "moved");
    fs::create_directory_symlink("other", "state");
    return ExpectOk(host->DoEverything(), "moved") && ExpectOk(host->Close(), "close") &&
           Expect(fs::is_empty("other"), "the other directory was written to") &&
           ExpectOk(CheckStore("moved", host->length), "reopen");
  });
}

TEST_F(HostDirectory, IsOpenedThroughALinkThatTurns) {
  InAChild([&] {
    fs::create_directory("one");
    fs::create_directory("two");
    fs::create_directory_symlink("one", "state");
    auto host = HostStore::Open("state/");
    if (!ExpectOk(host.status(), "open")) return false;
    fs::remove("state");
    fs::create_directory_symlink("two", "state");
    return ExpectOk(host->DoEverything(), "the link turned") && ExpectOk(host->Close(), "close") &&
           Expect(fs::is_empty("two"), "it followed the link") &&
           ExpectOk(CheckStore("one", host->length), "reopen");
  });
}

TEST_F(HostDirectory, IsTheWorkingDirectory) {
  InAChild([&] {
    fs::create_directory("state");
    fs::create_directory("other");
    if (chdir("state") != 0) return false;
    auto host = HostStore::Open(".");
    if (!ExpectOk(host.status(), "open") || chdir("../other") != 0) return false;
    return ExpectOk(host->DoEverything(), "elsewhere") &&
           ExpectOk(host->store.Checkpoint("copy").status(), "checkpoint") &&
           ExpectOk(host->Close(), "close") &&
           ExpectOk(CheckStore("../state", host->length), "reopen") &&
           ExpectOk(CheckStore("copy", host->length), "the copy");
  });
}

// Removing it loses the store, but with an error.
TEST_F(HostDirectory, IsRemovedWithAllInIt) {
  InAChild([&] {
    auto host = HostStore::Open("state");
    if (!ExpectOk(host.status(), "open") || !ExpectOk(host->Append(), "append")) return false;
    // Its spare segments are still being made and named meanwhile.
    for (std::error_code busy; fs::exists("state");) fs::remove_all("state", busy);
    usleep(20'000);
    // A segment that cannot be made may be what is noticed first.
    Status status;
    for (int i = 0; i < 200 && status.code() != StatusCode::kPoisoned; ++i) {
      status = host->Append();
      if (!status.ok()) usleep(20'000);
    }
    const Status closed = host->Close();
    return Expect(status.code() == StatusCode::kPoisoned, "append: " + status.ToString()) &&
           Expect(status.message().find("LOCK") != std::string_view::npos, status.ToString()) &&
           Expect(!closed.ok(), "Close says that all is well") &&
           Expect(!fs::exists("state"), "it was made again");
  });
}

// Names of the directory above are no affair of the store, and may be forbidden to it.
TEST_F(HostDirectory, LiesInOneThatMayNotBeRead) {
  fs::create_directory(In("parent"));
  InAChild([&] {
    if (chmod("parent", 0711) != 0 || mkdir("parent/state", 0700) != 0) return false;
    constexpr uid_t kNobody = 65534;
    if (geteuid() == 0) {
      chmod(".", 0711);
      if (chown("parent/state", kNobody, kNobody) != 0 || setuid(kNobody) != 0) return false;
    }
    auto host = HostStore::Open("parent/state");
    // The new store's name could not be made durable; an existing one opens all the same.
    if (geteuid() == kNobody) {
      return Expect(host.status().message().find("parent") != std::string_view::npos,
                    host.status().ToString());
    }
    return ExpectOk(host.status(), "open");
  });
}

// The store comes with the lower layer, as in an image of a container; all files are copied up.
TEST_F(HostDirectory, LiesOnOverlayfs) {
  InAChildThatMounts([&] {
    for (const char* name : {"volume", "top"}) fs::create_directory(name);
    // Not every file system may lie under an overlay; tmpfs may.
    if (mount("none", "volume", "tmpfs", 0, "size=64m") != 0) return Expect(false, "mount");
    for (const char* name : {"volume/lower", "volume/upper", "volume/work"}) {
      fs::create_directory(name);
    }
    auto host = HostStore::Open("volume/lower/state");
    if (!ExpectOk(host.status(), "open") || !ExpectOk(host->DoEverything(), "use")) return false;
    const uint64_t length = host->length;
    if (!ExpectOk(host->Close(), "close")) return false;
    if (mount("none", "top", "overlay", 0,
              "lowerdir=volume/lower,upperdir=volume/upper,workdir=volume/work") != 0) {
      fprintf(stderr, "overlayfs is not to be had here\n");
      return true;
    }
    return ExpectOk(CheckStore("top/state", length), "from the lower layer") && WorksOn("top");
  });
}

TEST_F(HostDirectory, IsMountedReadOnly) {
  InAChildThatMounts([&] {
    auto host = HostStore::Open("state");
    if (!ExpectOk(host.status(), "open") || !ExpectOk(host->DoEverything(), "use")) return false;
    const uint64_t length = host->length;
    if (!ExpectOk(host->Close(), "close")) return false;
    if (mount("state", "state", nullptr, MS_BIND, nullptr) != 0 ||
        mount("none", "state", nullptr, MS_BIND | MS_REMOUNT | MS_RDONLY, nullptr) != 0) {
      return Expect(false, "mount");
    }
    const auto writer = HostStore::Open("state");
    Options options = TinyOptions();
    options.create_if_missing = false;
    options.read_only = true;
    auto follower = HostStore::Open("state", options);
    return Expect(writer.status().code() == StatusCode::kReadOnly, writer.status().ToString()) &&
           ExpectOk(follower.status(), "a follower") &&
           Expect(follower->length == length, "the follower sees less") &&
           ExpectOk(follower->Check(), "a follower");
  });
}

// A loop device of `bytes` on a new file, with blocks of 4096 bytes; "" where there is none. It
// goes with its last user.
std::string FourKnDevice(const std::string& image, uint64_t bytes) {
  const int file = open(image.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  const int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
  if (file < 0 || control < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) return "";
  const std::string device = "/dev/loop" + std::to_string(ioctl(control, LOOP_CTL_GET_FREE));
  const int loop = open(device.c_str(), O_RDWR | O_CLOEXEC);
  loop_config config{};
  config.fd = static_cast<uint32_t>(file);
  config.block_size = 4096;
  config.info.lo_flags = LO_FLAGS_AUTOCLEAR;
  // The device stays open in this process, which keeps it until the mount does.
  return loop >= 0 && ioctl(loop, LOOP_CONFIGURE, &config) == 0 ? device : "";
}

TEST_F(HostDirectory, LiesOnADeviceOfFourKilobyteBlocks) {
  InAChildThatMounts([&] {
    const std::string device = FourKnDevice("image", 96 << 20);
    const std::string make = "PATH=$PATH:/sbin:/usr/sbin mkfs.ext4 -q -F " + device;
    fs::create_directory("volume");
    if (device.empty() || system(make.c_str()) != 0 ||
        mount(device.c_str(), "volume", "ext4", 0, nullptr) != 0) {
      fprintf(stderr, "a loop device of 4 KiB blocks is not to be had here\n");
      return true;
    }
    return WorksOn("volume");
  });
}

}  // namespace
}  // namespace cairn::testing
