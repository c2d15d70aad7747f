// SPDX-License-Identifier: Apache-2.0
//
// Property: a small session comes out of a table with one read, and the next time out of memory; so
// does a large one that is restored again. Damage is named and never cached; memory that is
// refused, or that others take, only costs time.
// Method: on the simulated disk, whose trace counts the reads.
#include <algorithm>

#include "sim/world.h"
#include "sstable/snapshot_format.h"
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

class RestoreTablesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    options_ = TinyOptions();
    options_.world = std::make_shared<io::World>(sim_.world());
    Reopen();
  }
  void Reopen() {
    ASSERT_OK(store_.Close());
    auto opened = Store::Open("/store", options_);
    ASSERT_OK(opened);
    store_ = std::move(*opened);
    sim_.disk->set_trace(true);
  }
  // A sealed session under its name; 0 positions of KV: tokens alone.
  void Write(const ModelSpec& model, const std::string& name, uint64_t length) {
    ASSERT_OK_ASSIGN(const ModelId id, store_.RegisterModel(model));
    ASSERT_OK_ASSIGN(Branch branch, store_.CreateBranch(id, {.name = name}));
    for (uint64_t at = 0; at < length; at += 100) {
      ASSERT_OK(AppendSome(branch, model, at, std::min<uint64_t>(100, length - at)));
    }
  }
  Branch Find(const std::string& name) {
    auto branch = store_.FindBranch(name);
    EXPECT_OK(branch);
    return *branch;
  }
  // Restores all of it and compares; the reads of tables meanwhile.
  uint64_t ReadsToRestore(const Branch& branch, const ModelSpec& model, uint64_t length) {
    const size_t before = sim_.disk->trace().size();
    KvSet got(model, Layout::kNhd, 0, length), want(model, Layout::kNhd, 0, length);
    want.Write(kSeed, 0, length);
    RestoreRequest request;
    std::vector<TokenId> tokens(length);
    request.into = got.View(0, length);
    request.tokens = tokens;
    const auto restored = branch.Restore(request);
    EXPECT_OK(restored);
    EXPECT_TRUE(got == want);
    return ReadsSince(before);
  }
  uint64_t ReadsSince(size_t before) {
    const std::vector<std::string>& trace = sim_.disk->trace();
    return static_cast<uint64_t>(std::count_if(
        trace.begin() + static_cast<ptrdiff_t>(before), trace.end(), [](const std::string& line) {
          return line.starts_with("read ") && line.find(".snapshot") != line.npos;
        }));
  }
  void AwaitPrefetches(uint64_t count) {
    while (store_.Metrics().prefetches < count) options_.world->scheduler->Sleep(100'000);
  }
  std::string TablePath() {
    std::string found;
    for (const std::string& path : sim_.disk->Files()) {
      if (path.ends_with(".snapshot")) found = path;
    }
    return found;
  }

  io::SimWorld sim_ = io::MakeSimWorld(1);
  Options options_;
  Store store_;
};

TEST_F(RestoreTablesTest, SmallSessionsComeWithOneRead) {
  const ModelSpec model = TinyModel();
  for (int i = 0; i < 20; ++i) Write(model, "chat" + std::to_string(i), 10 + i);
  ASSERT_OK(store_.Compact());
  Reopen();
  EXPECT_EQ(2u, ReadsToRestore(Find("chat3"), model, 13)) << "the end of the table; the session";
  for (int i = 4; i < 8; ++i) {
    EXPECT_EQ(1u, ReadsToRestore(Find("chat" + std::to_string(i)), model, 10 + i)) << i;
  }
  EXPECT_EQ(1u, ReadsToRestore(Find("chat5"), model, 15)) << "KV stays when it is read again";
  const StoreMetrics before = store_.Metrics();
  EXPECT_EQ(0u, ReadsToRestore(Find("chat5"), model, 15)) << "from memory";
  const StoreMetrics after = store_.Metrics();
  EXPECT_EQ(15 * model.token_bytes(), after.restored_cached_bytes - before.restored_cached_bytes);
  EXPECT_EQ(9u, after.restored_cached_frames - before.restored_cached_frames);
  EXPECT_EQ(before.restored_table_bytes, after.restored_table_bytes);
  EXPECT_EQ(before.restored_hot_bytes, after.restored_hot_bytes);
  EXPECT_GT(after.page_cache_bytes, 0u);
}

// Parts of what is kept as a whole, and of what is kept frame by frame.
TEST_F(RestoreTablesTest, AnyPartComesOutOfMemory) {
  for (const ModelSpec& model : {TinyModel(), HybridModel(), WideModel()}) {
    const std::string name = model.identity.name;
    Write(model, name, 700);
    ASSERT_OK(store_.Compact());
    Reopen();
    const Branch chat = Find(name);
    EXPECT_TRUE(HasKv(chat, model, 100, 300));
    EXPECT_TRUE(HasKv(chat, model, 0, 700));
    EXPECT_TRUE(HasKv(chat, model, 0, 700));
    const uint64_t read = store_.Metrics().restored_table_bytes;
    EXPECT_TRUE(HasKv(chat, model, 0, 700));
    EXPECT_TRUE(HasKv(chat, model, 5, 6));
    EXPECT_TRUE(HasKv(chat, model, 63, 640));
    EXPECT_EQ(read, store_.Metrics().restored_table_bytes) << name;
    // One layer of one group.
    KvSet got(model, Layout::kNhd, 0, 700), want(model, Layout::kNhd, 0, 700);
    want.pool(0).Write([](uint64_t) { return kSeed; }, 50, 60, 1, 1);
    GroupView view = got.pool(0).View(50, 10, 1, 1);
    const KvView kv{{&view, 1}};
    RestoreRequest request;
    request.begin = 50;
    request.end = 60;
    request.into = &kv;
    ASSERT_OK_ASSIGN(const RestoreResult result, chat.Restore(request));
    EXPECT_TRUE(got == want);
    EXPECT_EQ(result.bytes, result.hot_bytes);
  }
}

// Every frame of a session in turn: nothing wrong is served or kept, and what is whole is.
TEST_F(RestoreTablesTest, DamageIsNotKept) {
  ModelSpec model = TinyModel();
  model.extent_tokens = 64;  // Five pages in a small fragment.
  Write(model, "chat", 300);
  ASSERT_OK(store_.Compact());
  const std::string path = TablePath();
  ASSERT_OK_ASSIGN(const std::vector<std::byte> bytes, sim_.disk->ReadRaw(path));
  const auto footer =
      sstable::LoadAs<sstable::SnapshotFooter>(bytes.data() + bytes.size() - io::kBlockBytes);
  uint64_t frames = 0;
  for (uint64_t i = 0; i < footer.fragment_count; ++i) {
    const auto fragment = sstable::LoadAs<sstable::FragmentEntry>(
        bytes.data() + footer.fragments_offset + i * sizeof(sstable::FragmentEntry));
    for (uint64_t f = 0; f < fragment.frames(); ++f, ++frames) {
      const auto entry = sstable::LoadAs<sstable::FrameEntry>(
          bytes.data() + fragment.entries_offset + f * sizeof(sstable::FrameEntry));
      const uint64_t page_begin = fragment.begin + f % fragment.pages * fragment.page_rows;
      Reopen();
      const Branch chat = Find("chat");
      ASSERT_OK(sim_.disk->FlipBit(path, entry.offset, 3));
      for (int again = 0; again < 2; ++again) {
        KvSet got(model, Layout::kNhd, 0, 300);
        RestoreRequest request;
        std::vector<TokenId> tokens(300);
        request.into = got.View(0, 300);
        request.tokens = tokens;
        EXPECT_FAILS(chat.Restore(request), StatusCode::kCorruption,
                     "restorable up to position " + std::to_string(page_begin));
      }
      ASSERT_OK(sim_.disk->FlipBit(path, entry.offset, 3));
      ReadsToRestore(chat, model, 300);
    }
  }
  EXPECT_GT(frames, 20u);
}

TEST_F(RestoreTablesTest, OfSeveralDamagesTheLowestIsTold) {
  const ModelSpec model = WideModel();  // 8 KiB per token: large fragments, and small ones of ids.
  Write(model, "chat", 1500);
  ASSERT_OK(store_.Compact());
  const std::string path = TablePath();
  ASSERT_OK_ASSIGN(const std::vector<std::byte> bytes, sim_.disk->ReadRaw(path));
  const auto footer =
      sstable::LoadAs<sstable::SnapshotFooter>(bytes.data() + bytes.size() - io::kBlockBytes);
  std::vector<sstable::FragmentEntry> large;
  for (uint64_t i = 0; i < footer.fragment_count; ++i) {
    const auto fragment = sstable::LoadAs<sstable::FragmentEntry>(
        bytes.data() + footer.fragments_offset + i * sizeof(sstable::FragmentEntry));
    if (fragment.lane == 1) large.push_back(fragment);
  }
  ASSERT_GE(large.size(), 1u);
  const sstable::FragmentEntry& last = large.back();
  ASSERT_GT(last.bytes(), 128u << 10);
  // The last page of the last fragment, and, if there are two, the entries of one.
  const auto entry = sstable::LoadAs<sstable::FrameEntry>(
      bytes.data() + last.entries_offset + (last.pages - 1) * sizeof(sstable::FrameEntry));
  ASSERT_OK(sim_.disk->FlipBit(path, entry.offset, 1));
  Reopen();
  KvSet got(model, Layout::kNhd, 0, 1500);
  RestoreRequest request;
  request.into = got.View(0, 1500);
  EXPECT_FAILS(Find("chat").Restore(request), StatusCode::kCorruption,
               "restorable up to position " +
                   std::to_string(last.begin + (last.pages - 1) * last.page_rows));
  ASSERT_OK(sim_.disk->FlipBit(path, large.front().entries_offset, 1));
  Reopen();
  EXPECT_FAILS(Find("chat").Restore(request), StatusCode::kCorruption,
               "restorable up to position " + std::to_string(large.front().begin));
}

// Between the plan of a restore and the opening of a table that it names.
TEST_F(RestoreTablesTest, ATableThatDiesStaysAsLongAsItIsRead) {
  const ModelSpec model = TinyModel();
  const auto tables = [&] {
    const std::vector<std::string> files = sim_.disk->Files();
    return std::count_if(files.begin(), files.end(),
                         [](const std::string& path) { return path.ends_with(".snapshot"); });
  };
  Write(model, "chat", 100);
  ASSERT_OK(store_.Compact());
  {
    Branch chat = Find("chat");
    ASSERT_OK(AppendSome(chat, model, 100, 100));
  }
  ASSERT_OK(store_.Compact());
  ASSERT_EQ(2, tables());
  Reopen();
  Branch chat = Find("chat");
  sim_.disk->AddFault({.when =
                           [](const io::SimOperation& operation) {
                             return operation.op == io::SimOp::kRead &&
                                    operation.path.ends_with(".snapshot");
                           },
                       .delay_ns = 10'000'000'000});
  bool whole = false;
  auto reader = sim_.scheduler->StartThread("reader", [&] { whole = HasKv(chat, model, 0, 200); });
  sim_.scheduler->Sleep(1'000'000'000);
  ASSERT_OK(Find("chat").Drop());
  ASSERT_OK(store_.Compact());
  EXPECT_EQ(2, tables());
  reader.reset();
  EXPECT_TRUE(whole);
  ASSERT_OK(store_.Compact());
  EXPECT_EQ(0, tables());
}

TEST_F(RestoreTablesTest, SealingAndRewritingPassTheCacheBy) {
  const ModelSpec model = WideModel();
  Write(model, "chat", 300);
  ASSERT_OK(store_.Compact());
  EXPECT_EQ(0u, store_.Metrics().page_cache_bytes);
}

// A store with the least memory gives the same.
TEST_F(RestoreTablesTest, LittleMemory) {
  options_.max_memory_bytes = 16 << 20;
  options_.hot_tail_bytes = 8 << 20;
  options_.tree_memory_bytes = 64 << 20;
  Reopen();
  const ModelSpec model = WideModel();
  Write(model, "chat", 1000);
  ASSERT_OK(store_.Compact());
  Reopen();
  const Branch chat = Find("chat");
  for (int i = 0; i < 4; ++i) {
    ReadsToRestore(chat, model, 1000);
    EXPECT_LE(store_.Metrics().page_cache_bytes, 4u << 20);
  }
}

// Whatever allocation fails, a restore says so or is right.
TEST_F(RestoreTablesTest, MemoryIsRefused) {
  struct Refusing {
    uint64_t allocations = 0, refuse_at = UINT64_MAX;
  } refusing;
  options_.allocator = {[](void* context, size_t bytes, size_t alignment) -> void* {
                          auto* self = static_cast<Refusing*>(context);
                          if (self->allocations++ >= self->refuse_at) return nullptr;
                          return ::operator new (bytes, std::align_val_t{alignment});
                        },
                        [](void*, void* memory, size_t, size_t alignment) {
                          ::operator delete (memory, std::align_val_t{alignment});
                        },
                        &refusing};
  Reopen();
  const ModelSpec model = WideModel();
  Write(model, "chat", 300);
  ASSERT_OK(store_.Compact());
  uint64_t failed = 0, restored = 0;
  for (uint64_t at = 0; at < 20; ++at) {
    Reopen();
    const Branch chat = Find("chat");
    refusing.refuse_at = refusing.allocations + at;
    KvSet got(model, Layout::kNhd, 0, 300), want(model, Layout::kNhd, 0, 300);
    want.Write(kSeed, 0, 300);
    RestoreRequest request;
    request.into = got.View(0, 300);
    const auto result = chat.Restore(request);
    refusing.refuse_at = UINT64_MAX;
    if (result.ok()) {
      ++restored;
      EXPECT_TRUE(got == want);
    } else {
      ++failed;
      EXPECT_EQ(StatusCode::kOutOfMemory, result.status().code()) << result.status().ToString();
    }
    ReadsToRestore(chat, model, 300);
    ReadsToRestore(chat, model, 300);
  }
  EXPECT_GT(failed, 0u);
  EXPECT_GT(restored, 5u) << "without the cache's memory it goes on";
}

TEST_F(RestoreTablesTest, PrefetchBringsItIn) {
  for (const ModelSpec& model : {TinyModel(), HybridModel(), WideModel()}) {
    const std::string name = model.identity.name;
    Write(model, name, 300);
    ASSERT_OK(store_.Compact());
    Reopen();
    const Branch chat = Find(name);
    ASSERT_OK(chat.Prefetch(0, 300));
    AwaitPrefetches(1);
    EXPECT_EQ(0u, ReadsToRestore(chat, model, 300)) << name;
    EXPECT_EQ(0u, store_.Metrics().prefetches_failed);
    EXPECT_EQ(0u, store_.Metrics().restored_table_frames);
    // Present content is not read again.
    const size_t before = sim_.disk->trace().size();
    ASSERT_OK(chat.Prefetch());
    AwaitPrefetches(2);
    EXPECT_EQ(0u, ReadsSince(before));
  }
}

TEST_F(RestoreTablesTest, APrefetchIsAHint) {
  const ModelSpec model = TinyModel();
  Write(model, "chat", 100);
  const Branch chat = Find("chat");
  ASSERT_OK(chat.Prefetch());  // All of it is in the log.
  AwaitPrefetches(1);
  ASSERT_OK(store_.Compact());
  ASSERT_OK(chat.Prefetch(100));  // There is nothing.
  AwaitPrefetches(2);
  EXPECT_EQ(0u, store_.Metrics().prefetches_failed);
  EXPECT_EQ(0u, store_.Metrics().page_cache_bytes);
  EXPECT_FAILS(chat.Prefetch(2, 1), StatusCode::kInvalidArgument, "prefetch");
  EXPECT_FAILS(chat.Prefetch(0, 101), StatusCode::kInvalidArgument, "a branch of 100 tokens");

  const std::string path = TablePath();
  ASSERT_OK(sim_.disk->FlipBit(path, 1, 1));
  ASSERT_OK(chat.Prefetch());
  AwaitPrefetches(3);
  EXPECT_EQ(1u, store_.Metrics().prefetches_failed);
  ASSERT_OK(sim_.disk->FlipBit(path, 1, 1));
  ReadsToRestore(chat, model, 100);

  Branch gone = Find("chat");
  ASSERT_OK(gone.Drop());
  ASSERT_OK(chat.Prefetch());
  AwaitPrefetches(4);
  EXPECT_EQ(2u, store_.Metrics().prefetches_failed);
  ASSERT_OK(store_.Close());
  EXPECT_FAILS(chat.Prefetch(), StatusCode::kInvalidState, "closed");
}

// Many at once are refused, and closing does not wait for a word from anybody.
TEST_F(RestoreTablesTest, PrefetchesNeverBlock) {
  const ModelSpec model = WideModel();
  Write(model, "chat", 300);
  ASSERT_OK(store_.Compact());
  const Branch chat = Find("chat");
  uint64_t busy = 0;
  for (int i = 0; i < 1000; ++i) {
    const Status status = chat.Prefetch();
    busy += status.code() == StatusCode::kBusy;
    EXPECT_TRUE(status.ok() || status.code() == StatusCode::kBusy) << status.ToString();
  }
  EXPECT_GT(busy, 0u);
  ASSERT_OK(store_.Close());
}

// A hint brings in a part when there is no room for all.
TEST_F(RestoreTablesTest, APrefetchIsBounded) {
  options_.max_memory_bytes = 16 << 20;
  options_.hot_tail_bytes = 8 << 20;
  Reopen();
  ModelSpec model = WideModel();
  model.extent_tokens = 64;    // Frames of 8 KiB.
  Write(model, "chat", 2000);  // 16 MiB.
  ASSERT_OK(store_.Compact());
  Reopen();
  const Branch chat = Find("chat");
  ASSERT_OK(chat.Prefetch());
  AwaitPrefetches(1);
  EXPECT_GT(store_.Metrics().page_cache_bytes, 256u << 10);
  EXPECT_LE(store_.Metrics().page_cache_bytes, 5u << 20);
  ReadsToRestore(chat, model, 2000);
  EXPECT_GT(store_.Metrics().restored_cached_bytes, 128u << 10);
}

TEST_F(RestoreTablesTest, AClosedStoreRestoresNothingFromMemory) {
  const ModelSpec model = TinyModel();
  Write(model, "chat", 20);
  ASSERT_OK(store_.Compact());
  const Branch chat = Find("chat");
  ReadsToRestore(chat, model, 20);
  ASSERT_OK(store_.Close());
  KvSet got(model, Layout::kNhd, 0, 20);
  RestoreRequest request;
  request.into = got.View(0, 20);
  EXPECT_FAILS(chat.Restore(request), StatusCode::kInvalidState, "closed");
}

}  // namespace
}  // namespace cairn::testing
