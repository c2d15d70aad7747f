// SPDX-License-Identifier: Apache-2.0
#include <sys/resource.h>
#include <sys/utsname.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/codec/hash.h"
#include "base/codec/kv_frame.h"
#include "cairn/store.h"
#include "tools/cli/doctor.h"
#include "tools/cli/output.h"

namespace cairn::cli {

namespace {

namespace fs = std::filesystem;

// The number behind `key` in a file of "Key:   123 kB" lines; 0 when it is not there.
uint64_t NumberIn(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key + ":")) continue;
    std::istringstream words(line.substr(key.size() + 1));
    uint64_t number = 0;
    words >> number;
    return number;
  }
  return 0;
}

bool InContainer() {
  std::error_code error;
  return fs::exists("/.dockerenv", error) || fs::exists("/run/.containerenv", error);
}

// The most likely reason why this process cannot use io_uring.
std::string WhoForbidsUring() {
  const std::string disabled = FirstLine("/proc/sys/kernel/io_uring_disabled");
  if (disabled == "1" || disabled == "2") {
    return "sysctl kernel.io_uring_disabled is " + disabled + ": set it to 0";
  }
  if (NumberIn("/proc/self/status", "Seccomp") == 2) {
    return std::string("a seccomp filter is active") + (InContainer() ? " (container)" : "") +
           ": run with a profile that permits io_uring_setup, io_uring_enter and "
           "io_uring_register, for instance docker run --security-opt seccomp=PROFILE";
  }
  return "";
}

Finding Limit(const char* what, int resource, uint64_t enough, bool bytes, const char* advice) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0) return {Verdict::kWarn, what, "cannot be read"};
  if (limit.rlim_cur == RLIM_INFINITY) return {Verdict::kOk, what, "unlimited"};
  const uint64_t value = limit.rlim_cur;
  const std::string text = bytes ? BytesText(value) : std::to_string(value);
  if (value >= enough) return {Verdict::kOk, what, text};
  return {
      Verdict::kWarn, what,
      text + ", better " + (bytes ? BytesText(enough) : std::to_string(enough)) + ": " + advice};
}

// How KV is packed and unpacked here.
std::string CodecText() {
  const CodecPath path = BestCodecPath();
  if (path != CodecPath::kScalar) return std::string("KV codec by ") + CodecPathName(path);
  return "KV codec scalar: slower than with AVX-512 and VBMI2, the same bytes";
}

}  // namespace

void CheckProcessor(Findings* findings) {
  utsname names{};
  const std::string kernel =
      uname(&names) == 0 ? std::string(names.sysname) + " " + names.release : "unknown kernel";
  findings->push_back({Verdict::kOk, "cairn",
                       std::string(Version()) + ", format " + std::to_string(kFormatVersion) +
                           ", checksums by " + HashPathName() + ", " + CodecText()});
  findings->push_back({Verdict::kOk, "machine",
                       kernel + ", " + Plural(std::thread::hardware_concurrency(), "core") + ", " +
                           BytesText(NumberIn("/proc/meminfo", "MemTotal") << 10) + " of memory"});
}

void CheckUring(Findings* findings) {
  const auto world = io::MakeRealWorld(io::IoBackend::kUring);
  if (world.ok()) {
    findings->push_back({Verdict::kOk, "io_uring", "allowed"});
    return;
  }
  const std::string who = WhoForbidsUring();
  findings->push_back(
      {Verdict::kWarn, "io_uring",
       std::string(world.status().message()) + (who.empty() ? "" : ". Here " + who) +
           ". Until then blocking threads are used: as safe, slower for many reads at once"});
}

void CheckLimits(Findings* findings) {
  findings->push_back(Limit("memlock", RLIMIT_MEMLOCK, 8 << 20, true,
                            "io_uring and pinned buffers may be refused; raise ulimit -l"));
  findings->push_back(Limit("open files", RLIMIT_NOFILE, 1024, false,
                            "every log segment that is read takes one; raise ulimit -n"));
}

void CheckHugePages(Findings* findings) {
  const std::string mode = FirstLine("/sys/kernel/mm/transparent_hugepage/enabled");
  const uint64_t reserved = NumberIn("/proc/meminfo", "HugePages_Total");
  std::string detail = mode.empty() ? "no transparent ones" : "transparent: " + mode;
  if (reserved != 0) detail += ", " + std::to_string(reserved) + " reserved";
  const bool none = (mode.empty() || mode.find("[never]") != std::string::npos) && reserved == 0;
  if (none) {
    detail +=
        "; large buffers cost more page faults: "
        "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled";
  }
  findings->push_back({none ? Verdict::kWarn : Verdict::kOk, "huge pages", detail});
}

}  // namespace cairn::cli
