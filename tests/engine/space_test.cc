// SPDX-License-Identifier: Apache-2.0
//
// Property: space runs out with an error: kNoSpace before a byte of the call is in the log, no
// stored content is lost, reads go on, and work that gives space back still succeeds.
// Method: max_bytes in every world, and a real full file system and a read-only one where this
// process may mount. The background at the cap is tested in cap_test.cc.
#include <sys/mount.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

// Appends to `branch` until there is no space; the length reached. Other errors fail the test.
uint64_t FillUp(Branch& branch, const ModelSpec& model, uint64_t length, Durability durability) {
  for (int i = 0; i < 100'000; ++i) {
    const auto appended = AppendSome(branch, model, length, 4, kSeed, durability);
    if (!appended.ok()) {
      EXPECT_FAILS(appended, StatusCode::kNoSpace);
      return length;
    }
    length += 4;
  }
  ADD_FAILURE() << "the space never ran out";
  return length;
}

// Checks a store that is full, and whose background is paused.
void CheckFull(Store& store, Branch& chat, const ModelSpec& model, uint64_t length) {
  EXPECT_EQ(length, *chat.length());
  EXPECT_OK(store.poisoned());
  EXPECT_TRUE(HasKv(chat, model, 0, length));
  EXPECT_FAILS(AppendSome(chat, model, length, 4), StatusCode::kNoSpace);
  EXPECT_EQ(length, *chat.length()) << "refused before anything happened";
  EXPECT_OK(chat.Rewind(length - 3)) << "what gives space back works";
  EXPECT_OK(store.Flush());
}

class CapTest : public WorldTest {};
INSTANTIATE_TEST_SUITE_P(Worlds, CapTest, ::testing::ValuesIn(TestWorld::Names()), NameOf);

TEST_P(CapTest, MaxBytesIsAHardCap) {
  const ModelSpec model = WideModel();
  Options options = world_->options();
  options.max_bytes = 8 << 20;
  Reopen(options);
  ASSERT_OK(store_.PauseBackground());  // It would give space back meanwhile.
  Branch chat = Create(Register(model), "chat");
  Branch victim = Create(Register(model), "victim");
  ASSERT_OK(AppendSome(victim, model, 0, 8));
  const uint64_t length = FillUp(chat, model, 0, Durability::kProcess);
  EXPECT_GT(length * model.token_bytes(), options.max_bytes / 2) << "most of it was usable";
  const StoreMetrics metrics = store_.Metrics();
  EXPECT_LE(metrics.physical_bytes, options.max_bytes);
  if (GetParam() == "threads" || GetParam() == "io_uring") {
    uint64_t blocks = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(world_->path())) {
      struct stat info{};
      ASSERT_EQ(0, stat(entry.path().c_str(), &info));
      if (entry.is_regular_file()) blocks += static_cast<uint64_t>(info.st_blocks) * 512;
    }
    EXPECT_LE(blocks, options.max_bytes);
  }
  CheckFull(store_, chat, model, length);
  ASSERT_OK(victim.Drop());
  ASSERT_OK(chat.Rewind(length - 8));
  Reopen(options);
  chat = Find("chat");
  EXPECT_EQ(length - 8, *chat.length());
  EXPECT_TRUE(HasKv(chat, model, 0, length - 8));
  EXPECT_FAILS(store_.FindBranch("victim"), StatusCode::kNotFound);
  ASSERT_OK(chat.Drop()) << "in a store that was opened full";
  options.max_bytes = 16 << 20;
  Reopen(options);
  Branch next = Create(Register(model), "next");
  EXPECT_OK(AppendSome(next, model, 0, 100)) << "a larger cap makes room";
}

TEST_P(CapTest, LargeAppendsThatDoNotFitLeaveNothing) {
  const ModelSpec model = WideModel();
  Options options = world_->options();
  options.max_bytes = 3 << 20;
  Reopen(options);
  Branch chat = Create(Register(model), "chat");
  ASSERT_OK(AppendSome(chat, model, 0, 10));
  EXPECT_FAILS(AppendSome(chat, model, 10, 600), StatusCode::kNoSpace);
  EXPECT_EQ(10u, *chat.length());
  KvSet kv(model, Layout::kContiguous, 10, 600);
  kv.Write(kSeed, 10, 610);
  const std::vector<TokenId> tokens = Tokens(600);
  auto ticket = chat.Append(MakeDelta(tokens, kv.View(10, 600)));
  EXPECT_FAILS(ticket.ok() ? ticket->Wait() : ticket.status(), StatusCode::kNoSpace);
  EXPECT_EQ(10u, *chat.length());
  AppendOptions shed;
  shed.overload = Overload::kShedKv;
  EXPECT_OK(chat.Rewind(9));
  Reopen(options);
  chat = Find("chat");
  EXPECT_EQ(9u, *chat.length());
  EXPECT_TRUE(HasKv(chat, model, 0, 9));
}

// A file system of its own, while alive.
class Mount {
 public:
  Mount(const std::string& at, uint64_t bytes) : at_(at) {
    const std::string size = "size=" + std::to_string(bytes);
    mounted_ = mount("tmpfs", at.c_str(), "tmpfs", 0, size.c_str()) == 0;
    if (!mounted_) why_ = std::strerror(errno);
  }
  ~Mount() {
    if (mounted_) umount2(at_.c_str(), MNT_DETACH);
  }
  bool ok() const { return mounted_; }
  const std::string& why() const { return why_; }
  bool Remount(unsigned long flags, uint64_t bytes) {
    const std::string size = "size=" + std::to_string(bytes);
    return mount("tmpfs", at_.c_str(), "tmpfs", MS_REMOUNT | flags, size.c_str()) == 0;
  }

 private:
  const std::string at_;
  bool mounted_ = false;
  std::string why_;
};

class FullDiskTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    mount_ = std::make_unique<Mount>(directory_.path(), kBytes);
    if (!mount_->ok()) GTEST_SKIP() << "mounting is not permitted: " << mount_->why();
    options_ = TinyOptions();
    options_.backend = GetParam() == "threads" ? Backend::kThreads : Backend::kUring;
    if (auto probe = io::MakeRealWorld(GetParam() == "threads" ? io::IoBackend::kThreads
                                                               : io::IoBackend::kUring);
        !probe.ok()) {
      GTEST_SKIP() << probe.status().ToString();
    }
  }
  static constexpr uint64_t kBytes = 4 << 20;
  TempDirectory directory_;
  std::unique_ptr<Mount> mount_;
  Options options_;
};

INSTANTIATE_TEST_SUITE_P(Backends, FullDiskTest, ::testing::Values("threads", "io_uring"), NameOf);

TEST_P(FullDiskTest, AFullDiskIsNoSpace) {
  const std::string path = directory_.path() + "/store";
  const ModelSpec model = WideModel();
  ASSERT_OK_ASSIGN(Store store, Store::Open(path, options_));
  ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
  ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(id, {.name = "chat"}));
  ASSERT_OK(store.PauseBackground());  // It would give space back meanwhile.
  const uint64_t length = FillUp(chat, model, 0, Durability::kPower);
  EXPECT_GT(length, 100u);
  CheckFull(store, chat, model, length);
  ASSERT_OK(store.Close());
  store = Store();
  ASSERT_OK_ASSIGN(store, Store::Open(path, options_));
  ASSERT_OK_ASSIGN(chat, store.FindBranch("chat"));
  EXPECT_EQ(length - 3, *chat.length());
  EXPECT_TRUE(HasKv(chat, model, 0, length - 3));
  ASSERT_TRUE(mount_->Remount(0, 4 * kBytes));
  // Room was made; the store looks for it again before long.
  Status status;
  for (int attempt = 0; attempt < 50; ++attempt) {
    status = AppendSome(chat, model, length - 3, 50).status();
    if (status.code() != StatusCode::kNoSpace) break;
    io::MakeMemoryWorld().scheduler->Sleep(100'000'000);
  }
  EXPECT_OK(status);
  EXPECT_TRUE(HasKv(chat, model, 0, length + 47));
  store = Store();
}

TEST_P(FullDiskTest, AReadOnlyFileSystem) {
  const std::string path = directory_.path() + "/store";
  const ModelSpec model = TinyModel();
  {
    ASSERT_OK_ASSIGN(Store store, Store::Open(path, options_));
    ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
    ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(id, {.name = "chat"}));
    ASSERT_OK(AppendSome(chat, model, 0, 5));
  }
  ASSERT_TRUE(mount_->Remount(MS_RDONLY, kBytes));
  EXPECT_FAILS(Store::Open(path, options_), StatusCode::kReadOnly, path);
  EXPECT_FAILS(Store::Open(directory_.path() + "/new", options_), StatusCode::kReadOnly);
  options_.create_if_missing = false;
  options_.read_only = true;
  ASSERT_OK_ASSIGN(Store reader, Store::Open(path, options_));
  ASSERT_OK_ASSIGN(Branch chat, reader.FindBranch("chat"));
  EXPECT_TRUE(HasKv(chat, model, 0, 5));
}

// An error of the thread that makes tables is reported to the listener; the log stays as it was.
TEST(SpaceInSimulationTest, WhatFailsInTheBackgroundIsTold) {
  io::SimWorld machine = io::MakeSimWorld(1);
  Options options = TinyOptions();
  options.world = std::make_shared<io::World>(machine.world());
  options.listener = std::make_shared<EventListener>();
  std::vector<std::string> events;
  options.listener->on_event = [&](const std::string& line) { events.push_back(line); };
  ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
  const ModelSpec model = WideModel();
  ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
  ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(id, {.name = "chat"}));
  ASSERT_OK(AppendSome(chat, model, 0, 100));
  machine.disk->AddFault({.when =
                              [](const io::SimOperation& op) {
                                return op.op == io::SimOp::kCreate &&
                                       op.path.find("/tables/") != std::string::npos;
                              },
                          .error = EIO,
                          .persistent = true});
  const Status failed = store.Compact();
  EXPECT_FAILS(failed, StatusCode::kIoError, "/tables/");
  machine.disk->ClearFaults();
  EXPECT_NE(std::find(events.begin(), events.end(), "space: " + failed.ToString()), events.end())
      << ::testing::PrintToString(events);
  EXPECT_TRUE(HasKv(chat, model, 0, 100));
  ASSERT_OK(store.Compact());
  EXPECT_TRUE(HasKv(chat, model, 0, 100));
  ASSERT_OK(store.Close());
}

}  // namespace
}  // namespace cairn::testing
