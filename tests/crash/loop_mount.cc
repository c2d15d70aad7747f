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
  LoopMount mount(type);
  std::filesystem::create_directory(mount.path());
  std::ofstream(mount.image()).close();
  std::filesystem::resize_file(mount.image(), bytes);
  const std::string force = type == "xfs" ? " -q -f " : " -q -F ";
  const Status made = Run("PATH=$PATH:/sbin:/usr/sbin mkfs." + type + force + mount.image());
  const Status mounted = made.ok() ? mount.Mount() : made;
  if (!mounted.ok()) return Status(StatusCode::kInvalidState, std::string(mounted.message()));
  return mount;
}

LoopMount::LoopMount(LoopMount&& other) noexcept
    : type_(other.type_),
      scratch_(std::move(other.scratch_)),
      path_(other.path_),
      mounted_(std::exchange(other.mounted_, false)) {}

LoopMount::~LoopMount() {
  if (mounted_) (void)Run("umount -l " + path_);
}

Status LoopMount::Mount(const std::string& options) {
  const Status status =
      Run("mount -t " + type_ + " -o loop," + options + " " + image() + " " + path_);
  mounted_ = status.ok();
  return status;
}

Status LoopMount::Remount(const std::string& options) {
  return Run("mount -o remount," + options + " " + path_);
}

// The kernel closes the last files of a killed process after its parent was told of its end.
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
  struct stat info{};
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
