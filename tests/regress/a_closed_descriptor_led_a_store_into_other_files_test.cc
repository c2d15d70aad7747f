// SPDX-License-Identifier: Apache-2.0
//
// The bug: a program that closes descriptors which are not its own (daemons close everything from 3
// up) and then opens files gets the numbers of the store's files. The store wrote groups of its log
// into the program's files, and acknowledged them. Method: children take one number, or all, from
// an open store, and put files of their own there. The store says what it lost and writes nothing
// into them, nor closes them; the next opening finds what it acknowledged.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <tuple>
#include <utility>

#include "tests/engine/engine_test.h"
#include "tests/support/child.h"

namespace cairn::testing {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMineBytes = 512 << 10;  // Larger than a segment.
constexpr unsigned kChildSeconds = 60;

std::vector<int> OpenNumbers() {
  std::vector<int> numbers;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    numbers.push_back(std::stoi(entry.path().filename()));
  }
  // The directory that was read had one, too.
  std::erase_if(numbers, [](int fd) { return fd <= 2 || fcntl(fd, F_GETFD) < 0; });
  return numbers;
}

class AClosedDescriptor : public ::testing::TestWithParam<Backend> {
 protected:
  struct Used {
    Store store;
    Branch chat;
    CompletionQueue queue;
    uint64_t length = 0;
  };
  Result<Used> Begin() {
    Used used;
    Options options = TinyOptions();
    options.backend = GetParam();
    options.listener = {};
    CAIRN_ASSIGN_OR_RETURN(used.store, Store::Open(path_, options));
    CAIRN_ASSIGN_OR_RETURN(used.queue, used.store.NewCompletionQueue());
    CAIRN_ASSIGN_OR_RETURN(const ModelId id, used.store.RegisterModel(WideModel()));
    CAIRN_ASSIGN_OR_RETURN(used.chat, used.store.CreateBranch(id, {.name = "chat"}));
    CAIRN_ASSIGN_OR_RETURN(used.length, AppendSome(used.chat, WideModel(), 0, 256));
    CAIRN_RETURN_IF_ERROR(used.store.Compact());
    CAIRN_ASSIGN_OR_RETURN(used.length, AppendSome(used.chat, WideModel(), 256, 64));
    Rest(used.store);
    return used;
  }
  // Waits until threads of the store write nothing and open nothing. A write that has been checked
  // goes to the number, whose file may be another's by then: no check can be nearer than that.
  static void Rest(const Store& store) {
    const auto look = [&] {
      const StoreMetrics now = store.Metrics();
      return std::tuple(now.log_bytes_written, now.log_bytes_prewritten, now.table_bytes_written,
                        now.log_spare_segments, OpenNumbers());
    };
    auto last = look();
    for (int unchanged = 0; unchanged < 20; ++unchanged) {
      usleep(5000);
      auto now = look();
      if (now != last) unchanged = 0;
      last = std::move(now);
    }
  }
  // Everything that writes, whatever comes of it.
  static void Go(Used& used) {
    for (int i = 0; i < 4; ++i) {
      const auto length = AppendSome(used.chat, WideModel(), used.length, 64);
      if (!length.ok()) break;
      used.length = *length;
    }
    if (used.store.Compact().ok()) {
      static_cast<void>(HasKv(used.chat, WideModel(), 0, used.length));
    }
    static_cast<void>(used.store.Close());
  }

  std::string Mine(int number) const {
    return directory_.path() + "/mine-" + std::to_string(number);
  }
  // A file of the program at that number.
  bool PutMine(int number) const {
    std::ofstream(Mine(number)) << std::string(kMineBytes, 'm');
    const int fd = open(Mine(number).c_str(), O_RDWR);
    return fd == number || (dup2(fd, number) == number && close(fd) == 0);
  }
  bool MineIsAsItWas(int number) const {
    struct stat named, held;
    std::ifstream file(Mine(number), std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    const std::string which = "file " + std::to_string(number) + " of the program ";
    return Expect(bytes == std::string(kMineBytes, 'm'), which + "was written to") &&
           Expect(fstat(number, &held) == 0 && stat(Mine(number).c_str(), &named) == 0 &&
                      held.st_ino == named.st_ino,
                  which + "was closed");
  }
  bool HasAcknowledged(uint64_t length) const {
    auto store = Store::Open(path_, TinyOptions());
    if (!Expect(store.ok(), store.status().ToString())) return false;
    const auto chat = store->FindBranch("chat");
    const auto kv = HasKv(chat.value(), WideModel(), 0, length);
    return Expect(bool{kv}, std::string("what was acknowledged: ") + kv.message());
  }

  const TempDirectory directory_;
  const std::string path_ = directory_.path() + "/state";
};

INSTANTIATE_TEST_SUITE_P(, AClosedDescriptor, ::testing::Values(Backend::kUring, Backend::kThreads),
                         [](const auto& backend) {
                           return backend.param == Backend::kUring ? "Uring" : "Threads";
                         });

TEST_P(AClosedDescriptor, AmongAllOthers) {
  EXPECT_TRUE(InChild([&] {
    alarm(kChildSeconds);
    const std::vector<int> before = OpenNumbers();
    auto used = Begin();
    if (!Expect(used.ok(), used.status().ToString())) return false;
    std::vector<int> taken = OpenNumbers();
    std::erase_if(taken, [&](int fd) { return std::count(before.begin(), before.end(), fd) > 0; });
    for (const int number : taken) close(number);
    for (const int number : taken) {
      if (!PutMine(number)) return Expect(false, "the number is not to be had");
    }
    const auto refused = AppendSome(used->chat, WideModel(), used->length, 64);
    if (refused.ok()) used->length = *refused;  // It may be that nothing was to be written.
    Go(*used);
    const uint64_t length = used->length;
    used = Status(StatusCode::kNotFound, "closed");
    for (const int number : taken) {
      if (!MineIsAsItWas(number)) return false;
    }
    return Expect(taken.size() >= 5, "the store has more files open") && HasAcknowledged(length);
  }));
}

TEST_P(AClosedDescriptor, OfEachKind) {
  size_t kinds = 1;
  for (size_t kind = 0; kind < kinds; ++kind) {
    SCOPED_TRACE("the store's descriptor " + std::to_string(kind));
    fs::remove_all(path_);
    int counted[2];
    ASSERT_EQ(0, pipe(counted));
    EXPECT_TRUE(InChild([&] {
      alarm(kChildSeconds);
      const std::vector<int> before = OpenNumbers();
      auto used = Begin();
      if (!Expect(used.ok(), used.status().ToString())) return false;
      std::vector<int> taken = OpenNumbers();
      std::erase_if(taken,
                    [&](int fd) { return std::count(before.begin(), before.end(), fd) > 0; });
      std::sort(taken.begin(), taken.end());
      const size_t count = taken.size();
      if (write(counted[1], &count, sizeof(count)) != sizeof(count)) return false;
      if (count <= kind) return true;  // Now and then there is one less.
      std::error_code gone;
      const std::string was =
          fs::read_symlink("/proc/self/fd/" + std::to_string(taken[kind]), gone);
      if (gone) return true;  // A thread of the store closed it meanwhile.
      close(taken[kind]);
      if (!PutMine(taken[kind])) return Expect(false, "the number is not to be had");
      Go(*used);
      const uint64_t length = used->length;
      used = Status(StatusCode::kNotFound, "closed");
      return Expect(MineIsAsItWas(taken[kind]), "in the place of " + was) &&
             HasAcknowledged(length);
    }));
    size_t count = 0;
    ASSERT_EQ(ssize_t{sizeof(count)}, read(counted[0], &count, sizeof(count)));
    kinds = std::max(kinds, count);
    close(counted[0]);
    close(counted[1]);
  }
  EXPECT_LE(5u, kinds);
}

// LOCK, for one, is said by name.
TEST_P(AClosedDescriptor, IsSaidByName) {
  EXPECT_TRUE(InChild([&] {
    alarm(kChildSeconds);
    auto used = Begin();
    if (!Expect(used.ok(), used.status().ToString())) return false;
    for (const int number : OpenNumbers()) {
      std::error_code gone;  // Threads of the store close files of their own meanwhile.
      const std::string was = fs::read_symlink("/proc/self/fd/" + std::to_string(number), gone);
      if (was.ends_with("/LOCK")) close(number);
    }
    usleep(50'000);
    const Status status = AppendSome(used->chat, WideModel(), used->length, 64).status();
    return Expect(status.code() == StatusCode::kPoisoned &&
                      status.message().find("LOCK: its descriptor") != std::string_view::npos,
                  status.ToString());
  }));
}

}  // namespace
}  // namespace cairn::testing
