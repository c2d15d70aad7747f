// SPDX-License-Identifier: Apache-2.0
//
// The writer and the reader of real crashes as a program of its own, for machines that lose their
// power (tools/powercut):
//
//   cairn_crash_agent write STORE SEED SECONDS DEVICE OFFSET
//     Appends for SECONDS. After each acknowledgement a block at OFFSET of DEVICE says what was
//     acknowledged so far; it is written after what it reports, and never synced.
//   cairn_crash_agent check STORE IMAGE OFFSET
//     Compares the store with what that block of a disk's image says, and appends to it.
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/core/aligned_buffer.h"
#include "base/core/check.h"
#include "tests/crash/real_writer.h"

namespace cairn::crash {
namespace {

constexpr size_t kMarkBytes = 4096;
constexpr uint64_t kMagic = 0x6b72616d4e524943;
constexpr uint64_t kBranchesMax = 8;

struct Mark {
  uint64_t magic = kMagic;
  uint64_t reports = 0;
  std::array<uint64_t, kBranchesMax> lengths{};
};

class MarkBlock {
 public:
  MarkBlock(const char* path, int flags, off_t offset)
      : file_(open(path, flags | O_CLOEXEC)),
        offset_(offset),
        block_(AlignedBuffer::TryAllocate(Allocator::Default(), kMarkBytes, kMarkBytes)) {
    CAIRN_CHECK(file_ >= 0 && !block_.empty());
    std::memset(block_.data(), 0, kMarkBytes);
  }
  ~MarkBlock() { close(file_); }
  bool Write(const Mark& mark) {
    std::memcpy(block_.data(), &mark, sizeof(mark));
    return pwrite(file_, block_.data(), kMarkBytes, offset_) == kMarkBytes;
  }
  Mark Read() {
    Mark mark;
    CAIRN_CHECK(pread(file_, block_.data(), kMarkBytes, offset_) == kMarkBytes);
    std::memcpy(&mark, block_.data(), sizeof(mark));
    return mark.magic == kMagic ? mark : Mark();
  }

 private:
  const int file_;
  const off_t offset_;
  const AlignedBuffer block_;
};

int Write(char** arguments) {
  using Clock = std::chrono::steady_clock;
  const uint64_t seed = std::strtoull(arguments[1], nullptr, 10);
  const auto until = Clock::now() + std::chrono::seconds(std::atoi(arguments[2]));
  MarkBlock block(arguments[3], O_WRONLY | O_DIRECT, std::atoll(arguments[4]));
  Mark mark;
  const Status ended =
      WriteUntilTheEnd(arguments[0], {.moves_files = true}, seed, [&](const Report& report) {
        ++mark.reports;
        mark.lengths[report.branch] = report.length;
        return block.Write(mark) && Clock::now() < until;
      });
  std::printf("%llu reports, %s\n", static_cast<unsigned long long>(mark.reports),
              ended.ToString().c_str());
  return ended.ok() ? 0 : 1;
}

int Check(char** arguments) {
  MarkBlock block(arguments[1], O_RDONLY, std::atoll(arguments[2]));
  const Mark mark = block.Read();
  Reports acknowledged;
  for (uint64_t i = 0; i < kBranchesMax; ++i) {
    if (mark.lengths[i] != 0) acknowledged[i] = mark.lengths[i];
  }
  std::string wrong = CheckStore(arguments[0], {.moves_files = true}, acknowledged);
  if (wrong.empty()) {
    uint64_t more = 0;
    const Status ended =
        WriteUntilTheEnd(arguments[0], {.moves_files = true}, mark.reports, [&](const Report& r) {
          acknowledged[r.branch] = r.length;
          return ++more < 20;
        });
    wrong = ended.ok() ? CheckStore(arguments[0], {.moves_files = true}, acknowledged)
                       : "it does not go on: " + ended.ToString();
  }
  std::printf("%llu reports, %s\n", static_cast<unsigned long long>(mark.reports),
              wrong.empty() ? "all there" : wrong.c_str());
  return wrong.empty() ? 0 : 1;
}

}  // namespace
}  // namespace cairn::crash

int main(int argc, char** argv) {
  const std::string command = argc > 1 ? argv[1] : "";
  if (command == "write" && argc == 7) return cairn::crash::Write(argv + 2);
  if (command == "check" && argc == 5) return cairn::crash::Check(argv + 2);
  std::fprintf(stderr,
               "usage: cairn_crash_agent write STORE SEED SECONDS DEVICE OFFSET\n"
               "       cairn_crash_agent check STORE IMAGE OFFSET\n");
  return 2;
}
