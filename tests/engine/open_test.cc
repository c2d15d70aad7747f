// SPDX-License-Identifier: Apache-2.0
//
// Property: a store can be made, closed, found again and shared exactly as the options say, and a
// place that is no store, or not ours, is refused with words and left as it was.
// Method: every way of opening in every world; files are put, patched and removed by hand.
#include <seccomp.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/io/file_util.h"
#include "engine/manifest/manifest.h"
#include "tests/engine/engine_test.h"
#include "tests/support/child.h"

namespace cairn::testing {
namespace {

#if CAIRN_WITH_URING
TEST(OpenWithoutIoUring, IsRefusedWhereNothingElseWillDo) {
  const TempDirectory directory;
  EXPECT_TRUE(InChild([&] {
    Options options = TinyOptions();
    options.backend = Backend::kUring;
    if (!Expect(Refuse(SCMP_SYS(io_uring_setup), EPERM), "no seccomp")) return false;
    const Status status = Store::Open(directory.path() + "/store", options).status();
    return Expect(Fails(status, StatusCode::kIoError, "io_uring"), status.ToString());
  }));
  EXPECT_FALSE(std::filesystem::exists(directory.path() + "/store"));
}
#endif

class OpenTest : public WorldTest {
 protected:
  std::vector<std::string> List(const std::string& path) {
    auto names = world_->world().files->List(path);
    EXPECT_OK(names);
    return names.ok() ? *names : std::vector<std::string>();
  }
  std::vector<std::byte> Read(const std::string& path) {
    auto bytes = io::ReadWholeFile(*world_->world().files, path, 1 << 24);
    EXPECT_OK(bytes);
    return bytes.ok() ? *bytes : std::vector<std::byte>();
  }
  void Overwrite(const std::string& path, const std::vector<std::byte>& bytes) {
    ASSERT_OK(io::WriteFileDurably(*world_->world().files, path, bytes));
  }
};

INSTANTIATE_TEST_SUITE_P(Worlds, OpenTest, ::testing::ValuesIn(TestWorld::Names()), NameOf);

TEST_P(OpenTest, ContentSurvivesReopening) {
  const ModelSpec model = TinyModel();
  Branch chat = Create(Register(model), "chat");
  ASSERT_OK(AppendSome(chat, model, 0, 9));
  for (int i = 0; i < 3; ++i) {
    Reopen();
    EXPECT_EQ("", store_.recovery_note());
    chat = Find("chat");
    ASSERT_OK_ASSIGN(const BranchInfo info, chat.Info());
    EXPECT_EQ(9u + static_cast<uint64_t>(i), info.length);
    EXPECT_TRUE(HasKv(chat, model, 0, info.length));
    ASSERT_OK(AppendSome(chat, model, info.length, 1));
  }
}

// An opening writes one, too, for its history.
TEST_P(OpenTest, EachCloseWritesTheNextManifestAndRemovesTheOneBefore) {
  for (int close = 2; close < 8; close += 2) {
    ASSERT_OK(store_.Close());
    ASSERT_OK(store_.Close()) << "closing is idempotent";
    const std::vector<std::string> want = {"HINT",    "LOCK", "MANIFEST-" + std::to_string(close),
                                           "OPTIONS", "log",  "tables"};
    EXPECT_EQ(want, List(world_->path()));
    ASSERT_OK(engine::ReadOptionsFile(*world_->world().files, world_->path()));
    Reopen();
  }
}

TEST_P(OpenTest, EachLineOfOptionsSaysSomething) {
  ASSERT_OK_ASSIGN(const std::vector<std::byte> bytes,
                   io::ReadWholeFile(*world_->world().files, world_->path() + "/OPTIONS", 4096));
  const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  EXPECT_EQ(text.find("=\n"), std::string::npos) << text;
}

TEST_P(OpenTest, MissingAndExistingStores) {
  Options options = world_->options();
  options.error_if_exists = true;
  ASSERT_OK(store_.Close());
  EXPECT_FAILS(Store::Open(world_->path(), options), StatusCode::kAlreadyExists, world_->path());
  options = world_->options();
  options.create_if_missing = false;
  ASSERT_OK(Store::Open(world_->path(), options));
  const std::string nowhere = world_->path() + "-nowhere";
  EXPECT_FAILS(Store::Open(nowhere, options), StatusCode::kNotFound, "create_if_missing");
  options.read_only = true;
  EXPECT_FAILS(Store::Open(nowhere, options), StatusCode::kNotFound, nowhere);
  EXPECT_FAILS(Store::Open("", options), StatusCode::kInvalidArgument, "path");
  EXPECT_FAILS(Store::Open(std::string("state\0/other", 12), options),
               StatusCode::kInvalidArgument, "zero byte");
}

TEST_P(OpenTest, ADirectoryWithOtherFilesIsLeftAlone) {
  const std::string path = world_->path() + "-other";
  io::FileSystem& files = *world_->world().files;
  ASSERT_OK(files.CreateDirectory(path));
  const std::string text = "precious";
  ASSERT_OK(io::WriteFileDurably(files, path + "/thesis.txt", std::as_bytes(std::span(text))));
  EXPECT_FAILS(Store::Open(path, world_->options()), StatusCode::kInvalidState, "thesis.txt");
  EXPECT_EQ(std::vector<std::string>{"thesis.txt"}, List(path));
  EXPECT_FAILS(Store::Open(path + "/thesis.txt", world_->options()), StatusCode::kInvalidState,
               "is a file");
}

TEST_P(OpenTest, ANewerManifestIsUnsupported) {
  ASSERT_OK(store_.Close());
  const std::string path = world_->path() + "/MANIFEST-2";
  std::vector<std::byte> bytes = Read(path);
  const uint32_t newer = kFormatVersion + 1;
  std::memcpy(bytes.data() + 8, &newer, sizeof newer);
  const uint64_t hash = Hash(std::span(bytes).first(bytes.size() - 8));
  std::memcpy(bytes.data() + bytes.size() - 8, &hash, sizeof hash);
  Overwrite(path, bytes);
  EXPECT_FAILS(world_->Open(), StatusCode::kUnsupportedFormat, "MANIFEST-2");
}

TEST_P(OpenTest, OneWriterAndManyReaders) {
  const ModelSpec model = TinyModel();
  Branch chat = Create(Register(model), "chat");
  ASSERT_OK(AppendSome(chat, model, 0, 5, kSeed, Durability::kPower));
  ASSERT_OK(store_.Flush());  // Tells readers at once.
  EXPECT_FAILS(world_->Open(), StatusCode::kLocked);

  Options options = world_->options();
  options.create_if_missing = false;
  options.read_only = true;
  ASSERT_OK_ASSIGN(Store reader, Store::Open(world_->path(), options));
  ASSERT_OK_ASSIGN(Store another, Store::Open(world_->path(), options));
  ASSERT_OK_ASSIGN(Branch seen, reader.FindBranch("chat"));
  EXPECT_TRUE(HasKv(seen, model, 0, 5));
  ASSERT_OK(AppendSome(chat, model, 5, 5)) << "the writer goes on";
  EXPECT_TRUE(HasKv(seen, model, 0, 5)) << "a reader sees what was there when it was opened";
  EXPECT_EQ(5u, *seen.length());

  const std::vector<TokenId> tokens = {1};
  KvSet kv(model, Layout::kContiguous, 5, 1);
  EXPECT_FAILS(seen.Append(MakeDelta(tokens)), StatusCode::kReadOnly);
  EXPECT_FAILS(seen.AppendSync(MakeDelta(tokens)), StatusCode::kReadOnly);
  EXPECT_FAILS(seen.BeginAppend(1), StatusCode::kReadOnly);
  EXPECT_FAILS(seen.Fill(*kv.View(5, 1)), StatusCode::kReadOnly);
  EXPECT_FAILS(seen.ForkAt(1, {}), StatusCode::kReadOnly);
  EXPECT_FAILS(seen.Rewind(1), StatusCode::kReadOnly);
  EXPECT_FAILS(seen.Rename("x"), StatusCode::kReadOnly);
  EXPECT_FAILS(seen.Drop(), StatusCode::kReadOnly);
  EXPECT_FAILS(reader.CreateBranch(reader.Models()[0].id), StatusCode::kReadOnly);
  EXPECT_FAILS(reader.RegisterModel(TinyModel("other")), StatusCode::kReadOnly);
  EXPECT_OK(reader.RegisterModel(model)) << "a known model needs no write";
  EXPECT_FAILS(reader.Flush(), StatusCode::kReadOnly);
  WriteBatch batch;
  batch.Drop(seen);
  EXPECT_FAILS(reader.Write(batch), StatusCode::kReadOnly);
  EXPECT_OK(reader.Close());
  EXPECT_OK(another.Close());
}

TEST_P(OpenTest, AReaderChangesNoFile) {
  const ModelSpec model = TinyModel();
  Branch chat = Create(Register(model), "chat");
  ASSERT_OK(AppendSome(chat, model, 0, 5));
  ASSERT_OK(store_.Close());
  const std::vector<std::string> before = List(world_->path());
  const std::vector<std::string> log_before = List(world_->path() + "/log");
  std::vector<std::vector<std::byte>> content;
  for (const std::string& name : log_before)
    content.push_back(Read(world_->path() + "/log/" + name));
  Options options = world_->options();
  options.create_if_missing = false;
  options.read_only = true;
  {
    ASSERT_OK_ASSIGN(Store reader, Store::Open(world_->path(), options));
    ASSERT_OK(reader.Verify(VerifyLevel::kAll));
  }
  EXPECT_EQ(before, List(world_->path()));
  EXPECT_EQ(log_before, List(world_->path() + "/log"));
  for (size_t i = 0; i < log_before.size(); ++i) {
    EXPECT_EQ(content[i], Read(world_->path() + "/log/" + log_before[i])) << log_before[i];
  }
}

TEST(OptionsTest, EachBadValueIsNamed) {
  const auto fails = [](auto change, const std::string& field) {
    Options options = TinyOptions();
    change(options);
    EXPECT_FAILS(options.Validate(), StatusCode::kInvalidArgument, field);
    EXPECT_FAILS(Store::Open(":memory:", options), StatusCode::kInvalidArgument, field);
  };
  EXPECT_OK(TinyOptions().Validate());
  EXPECT_OK(Options().Validate());
  fails([](Options& o) { o.segment_bytes = (256 << 10) - 4096; }, "segment_bytes");
  fails([](Options& o) { o.segment_bytes = (256 << 10) + 1; }, "segment_bytes");
  fails([](Options& o) { o.segment_bytes = 2ull << 30; }, "segment_bytes");
  fails([](Options& o) { o.spare_segments_min = 0; }, "spare_segments");
  fails([](Options& o) { o.spare_segments_max = 0; }, "spare_segments");
  fails([](Options& o) { o.max_memory_bytes = 1 << 20; }, "max_memory_bytes");
  fails([](Options& o) { o.hot_tail_bytes = o.max_memory_bytes; }, "hot_tail_bytes");
  fails([](Options& o) { o.hot_tail_bytes = 0; }, "hot_tail_bytes");
  fails([](Options& o) { o.backend = Backend{77}; }, "backend");
  fails([](Options& o) { o.on_fatal = FatalAction{9}; }, "on_fatal");
  fails([](Options& o) { o.recovery = Recovery{9}; }, "recovery");
  fails([](Options& o) { o.submit_copy_max_bytes = 64 << 20; }, "submit_copy_max_bytes");
  fails([](Options& o) { o.replay_records_max = 0; }, "replay_records_max");
  fails([](Options& o) { o.delta_batch_tokens = 0; }, "delta_batch_tokens");
  fails([](Options& o) { o.delta_batch_tokens = 65; }, "delta_batch_tokens");
  fails([](Options& o) { o.allocator.allocate = nullptr; }, "allocator");
  fails([](Options& o) { o.executor_threads = 10'000; }, "executor_threads is 10000; at most ");
  fails([](Options& o) { o.read_only = true; }, "read_only");
}

TEST(OptionsTest, ALevelOfDurabilityThatDoesNotExistIsRefused) {
  const ModelSpec model = TinyModel();
  const Durability none{9};
  ASSERT_OK_ASSIGN(Store store, Store::Open(":memory:", {}));
  EXPECT_FAILS(store.RegisterModel(model, none), StatusCode::kInvalidArgument, "durability 9");
  ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
  EXPECT_FAILS(store.CreateBranch(id, {.durability = none}), StatusCode::kInvalidArgument,
               "durability 9");
  ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(id, {}));
  const std::vector<TokenId> tokens = {1};
  EXPECT_FAILS(chat.AppendSync({.tokens = tokens}, {.durability = none}),
               StatusCode::kInvalidArgument, "durability 9");
  EXPECT_FAILS(chat.Drop(none), StatusCode::kInvalidArgument, "durability 9");
  WriteBatch batch;
  batch.Drop(chat);
  EXPECT_FAILS(store.Write(batch, {.durability = none}), StatusCode::kInvalidArgument,
               "durability 9");
}

TEST(MemoryStoreTest, LivesAndDiesWithItsObject) {
  const ModelSpec model = TinyModel();
  ASSERT_OK_ASSIGN(Store store, Store::Open(":memory:", {}));
  EXPECT_EQ("memory", store.io_name());
  ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
  ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(id, {.name = "chat"}));
  ASSERT_OK(AppendSome(chat, model, 0, 3));
  EXPECT_TRUE(HasKv(chat, model, 0, 3));
  ASSERT_OK_ASSIGN(Store another, Store::Open(":memory:", {}));
  EXPECT_FAILS(another.FindBranch("chat"), StatusCode::kNotFound, "chat");
}

TEST(RealStoreTest, ChoosesABackendByItself) {
  TempDirectory directory;
  Options options = TinyOptions();
  ASSERT_OK_ASSIGN(Store store, Store::Open(directory.path() + "/store", options));
  EXPECT_TRUE(store.io_name() == "io_uring" || store.io_name() == "threads");
  EXPECT_TRUE(store.sync_method() == "dsync" || store.sync_method() == "fdatasync");
}

}  // namespace
}  // namespace cairn::testing
