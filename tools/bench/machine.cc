// SPDX-License-Identifier: Apache-2.0

#include "tools/bench/machine.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>
#include <utility>

namespace cairn::bench {
namespace {

namespace fs = std::filesystem;

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string CpuName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

// Field 3 of a line of mountinfo is the device, 6 the options; the type follows " - ".
std::string MountedAs(const std::string& device_number) {
  std::ifstream file("/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string id, parent, device, root, where, options;
    words >> id >> parent >> device >> root >> where >> options;
    const size_t dash = line.find(" - ");
    if (device != device_number || dash == std::string::npos) continue;
    const std::string rest = line.substr(dash + 3);
    return rest.substr(0, rest.find(' ')) + " (" + options + ")";
  }
  return "unknown";
}

std::string DeviceOf(const std::string& device_number) {
  std::error_code error;
  fs::path block = fs::canonical("/sys/dev/block/" + device_number, error);
  if (error) return "unknown";
  const std::string name = block.filename();
  if (!fs::exists(block / "queue", error)) block = block.parent_path();  // A partition.
  const std::string queue = block / "queue";
  const std::string schedulers = FirstLine(queue + "/scheduler");
  const size_t open = schedulers.find('['), close = schedulers.find(']');
  const std::string scheduler = open != std::string::npos && close != std::string::npos
                                    ? schedulers.substr(open + 1, close - open - 1)
                                    : schedulers;
  return name + " (" + FirstLine(queue + "/write_cache") + ", fua " + FirstLine(queue + "/fua") +
         ", " + scheduler + ")";
}

// The number behind `key` in a file of lines "key: number ..."; 0 without it.
uint64_t NumberIn(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key + ":")) return std::stoull(line.substr(key.size() + 1));
  }
  return 0;
}

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

}  // namespace

MachineInfo DescribeMachine(const std::string& directory) {
  MachineInfo info;
  info.cpu = CpuName();
  info.cores = std::thread::hardware_concurrency();
  utsname names{};
  if (uname(&names) == 0) info.kernel = std::string(names.sysname) + " " + names.release;
  struct stat status{};
  if (stat(directory.c_str(), &status) == 0) {
    const std::string number =
        std::to_string(major(status.st_dev)) + ":" + std::to_string(minor(status.st_dev));
    info.file_system = MountedAs(number);
    info.device = DeviceOf(number);
  }
  return info;
}

double ProcessCpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return Seconds(usage.ru_utime) + Seconds(usage.ru_stime);
}

double ThreadCpuSeconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

uint64_t ResidentBytes() { return NumberIn("/proc/self/status", "VmRSS") * 1024; }

uint64_t ProcessBytesWritten() { return NumberIn("/proc/self/io", "write_bytes"); }

uint64_t ProcessMinorFaults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_minflt);
}

uint64_t AllocatedBytes(const std::string& directory) {
  constexpr uint64_t kUnitBytes = 512;  // st_blocks counts these.
  uint64_t blocks = 0;
  std::error_code error;
  for (const auto& entry : fs::recursive_directory_iterator(directory, error)) {
    struct stat status{};
    if (stat(entry.path().c_str(), &status) == 0) blocks += status.st_blocks;
  }
  return blocks * kUnitBytes;
}

void DropFileCaches(const std::string& directory) {
  std::error_code error;
  for (const auto& entry : fs::recursive_directory_iterator(directory, error)) {
    if (!entry.is_regular_file(error)) continue;
    const int fd = open(entry.path().c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) continue;
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
  }
}

Result<ScratchDirectory> ScratchDirectory::Create(const std::string& parent,
                                                  const std::string& name) {
  ScratchDirectory scratch;
  std::error_code error;
  if (fs::create_directories(parent, error)) scratch.made_parent_ = parent;
  if (!error) {
    scratch.path_ = parent + "/" + name + "-" + std::to_string(getpid());
    fs::create_directory(scratch.path_, error);
  }
  if (error) return Status(StatusCode::kIoError, scratch.path_ + ": " + error.message());
  return scratch;
}

ScratchDirectory::ScratchDirectory(ScratchDirectory&& other) noexcept
    : path_(std::exchange(other.path_, {})), made_parent_(std::exchange(other.made_parent_, {})) {}

ScratchDirectory::~ScratchDirectory() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
  if (!made_parent_.empty()) fs::remove(made_parent_, ignored);  // Fails when it is not empty.
}

}  // namespace cairn::bench
