// SPDX-License-Identifier: Apache-2.0
#include "tests/crash/loop_mount.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

namespace cairn::crash {
namespace {

// FS_IOC_SHUTDOWN, which xfs calls XFS_IOC_GOINGDOWN, and "without flushing the journal": not in
// the headers that Debian 12 has.
constexpr unsigned long kShutdown = _IOR('X', 125, uint32_t);
constexpr uint32_t kWithoutFlush = 2;

Status Run(const std::string& command) {
  std::string said;
  FILE* const out = popen((command + " 2>&1").c_str(), "r");
  if (out == nullptr) return Status(StatusCode::kIoError, command + ": " + std::strerror(errno));
  std::array<char, 256> piece;
  while (std::fgets(piece.data(), piece.size(), out) != nullptr) said += piece.data();
  if (pclose(out) == 0) return Status::Ok();
  return Status(StatusCode::kIoError, command + ": " + said);
}

}  // namespace

Result<LoopMount> LoopMount::Make(const std::string& type, uint64_t bytes) {
  LoopMount mount(type, bytes);
  std::filesystem::create_directory(mount.path());
  Status made;
  if (type != "tmpfs") {
    std::ofstream(mount.image()).close();
    std::filesystem::resize_file(mount.image(), bytes);
    const std::string force = type == "ext4" ? " -q -F " : " -q -f ";
    made = Run("PATH=$PATH:/sbin:/usr/sbin mkfs." + type + force + mount.image());
  }
  const Status mounted = made.ok() ? mount.Mount() : made;
  if (!mounted.ok()) return Status(StatusCode::kInvalidState, std::string(mounted.message()));
  return mount;
}

LoopMount::LoopMount(LoopMount&& other) noexcept
    : type_(other.type_),
      bytes_(other.bytes_),
      scratch_(std::move(other.scratch_)),
      path_(other.path_),
      mounted_(std::exchange(other.mounted_, false)) {}

LoopMount::~LoopMount() {
  if (mounted_) (void)Run("umount -l " + path_);
}

Status LoopMount::Mount(const std::string& options) {
  const std::string what = type_ == "tmpfs"
                               ? "size=" + std::to_string(bytes_) + "," + options + " none "
                               : "loop," + options + " " + image() + " ";
  const Status status = Run("mount -t " + type_ + " -o " + what + path_);
  mounted_ = status.ok();
  return status;
}

// By blocks that are only allocated, in ever smaller pieces; then by bytes.
Status LoopMount::Fill() {
  const int hog = open((path_ + "/hog").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (hog < 0) return Status(StatusCode::kIoError, path_ + "/hog: " + std::strerror(errno));
  constexpr off_t kLargest = 16 << 20, kSmallest = 4096;
  off_t end = 0;
  for (off_t piece = kLargest; piece >= kSmallest;) {
    if (fallocate(hog, 0, end, piece) == 0) {
      end += piece;
    } else {
      piece /= 2;
    }
  }
  const std::string bytes(kSmallest, 'x');
  while (write(hog, bytes.data(), bytes.size()) > 0) {
  }
  fsync(hog);
  close(hog);
  return Status::Ok();
}

// What is freed counts as free with the next transaction.
Status LoopMount::Empty() {
  std::filesystem::remove(path_ + "/hog");
  return Run("sync -f " + path_);
}

Status LoopMount::Remount(const std::string& options) {
  return Run("mount -o remount," + options + " " + path_);
}

// The kernel closes the last files of a killed process after its parent learned of its end.
Status LoopMount::Unmount() {
  Status status = Run("umount " + path_);
  for (int attempt = 0; !status.ok() && attempt < 100; ++attempt) {
    usleep(50'000);
    status = Run("umount " + path_);
  }
  mounted_ = !status.ok();
  return status;
}

Status LoopMount::LosePower() {
  const int directory = open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return Status(StatusCode::kIoError, path_ + ": " + std::strerror(errno));
  uint32_t how = kWithoutFlush;
  const int done = ioctl(directory, kShutdown, &how);
  const int error = errno;
  close(directory);
  if (done == 0) return Status::Ok();
  return Status(StatusCode::kInvalidState, path_ + ": no shutdown: " + std::strerror(error));
}

Status LoopMount::FindAnError() {
  struct stat info {};
  if (stat(path_.c_str(), &info) != 0) return Status(StatusCode::kIoError, std::strerror(errno));
  const std::string device =
      std::filesystem::read_symlink("/sys/dev/block/" + std::to_string(major(info.st_dev)) + ":" +
                                    std::to_string(minor(info.st_dev)))
          .filename();
  std::ofstream trigger("/sys/fs/" + type_ + "/" + device + "/trigger_fs_error");
  trigger << "1\n" << std::flush;
  if (trigger.good()) return Status::Ok();
  return Status(StatusCode::kInvalidState, device + ": no error can be triggered");
}

}  // namespace cairn::crash
