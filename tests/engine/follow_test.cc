// SPDX-License-Identifier: Apache-2.0
//
// Property: a store that is read only, beside a writer, shows what is durable and nothing else, at
// the latest after Refresh; whatever the writer does to the files, its reads are right or say that
// they are behind, and it changes nothing.
// Method: two stores in one world, in each of the worlds. Content follows from a branch's name and
// length alone, so that every read can be judged alone; the writer seals, merges, retires and
// deletes in small segments, the follower reads all the while.
#include <map>
#include <random>

#include "engine/config/constants.h"
#include "engine/follow/hint.h"
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

class FollowTest : public WorldTest {
 protected:
  Options Reading() const {
    Options options = world_->options();
    options.create_if_missing = false;
    options.read_only = true;
    return options;
  }
  Store Follow() {
    auto opened = world_->Open(Reading());
    EXPECT_OK(opened);
    return opened.ok() ? std::move(*opened) : Store();
  }
  // As a writer that gives log segments, tables and memory back all the time.
  Options ReopenInMotion() {
    Options options = world_->options();
    options.log_bytes_max = 1 << 20;
    options.replay_records_max = 40;
    options.hot_tail_bytes = 256 << 10;
    Reopen(options);
    return options;
  }
  // Until it shows a branch of this length, or a second has passed.
  static bool Shows(Store& follower, const std::string& name, uint64_t length,
                    io::Scheduler& scheduler) {
    for (int attempt = 0; attempt < 100; ++attempt) {
      EXPECT_OK(follower.Refresh());
      auto branch = follower.FindBranch(name);
      if (branch.ok() && *branch->length() == length) return true;
      scheduler.Sleep(10'000'000);
    }
    return false;
  }
  io::Scheduler& scheduler() { return *world_->world().scheduler; }
};

TEST_P(FollowTest, ShowsWhatIsDurableAndNothingBefore) {
  const ModelSpec model = TinyModel();
  Branch chat = Create(Register(model), "chat");
  ASSERT_OK(AppendSome(chat, model, 0, 5));
  ASSERT_OK(store_.Flush());
  Store follower = Follow();
  ASSERT_OK_ASSIGN(const Branch seen, follower.FindBranch("chat"));
  EXPECT_EQ(5u, *seen.length());
  ASSERT_OK_ASSIGN(RefreshResult result, follower.Refresh());
  EXPECT_FALSE(result.changed);

  // Written, and a crash may take it.
  ASSERT_OK(AppendSome(chat, model, 5, 3, kSeed, Durability::kProcess));
  scheduler().Sleep(50'000'000);
  ASSERT_OK_ASSIGN(result, follower.Refresh());
  EXPECT_FALSE(result.changed);
  EXPECT_EQ(5u, *seen.length());
  EXPECT_EQ(5u, *Follow().FindBranch("chat")->length()) << "nor does one that is opened now";

  ASSERT_OK(store_.Flush());
  EXPECT_EQ(5u, *seen.length()) << "not by itself";
  ASSERT_OK_ASSIGN(result, follower.Refresh());
  EXPECT_TRUE(result.changed);
  EXPECT_EQ(store_.Metrics().durable_sequence, result.sequence);
  EXPECT_EQ(8u, *seen.length());
  EXPECT_TRUE(HasKv(seen, model, 0, 8));

  // Nobody flushes, nothing follows.
  ASSERT_OK(AppendSome(chat, model, 8, 1, kSeed, Durability::kPower));
  EXPECT_TRUE(Shows(follower, "chat", 9, scheduler()));
  EXPECT_FAILS(store_.Refresh(), StatusCode::kInvalidState);
  EXPECT_FAILS(follower.Flush(), StatusCode::kReadOnly);
}

TEST_P(FollowTest, WithoutTheHintTheLogItselfSaysWhatIsSynced) {
  const ModelSpec model = TinyModel();
  Branch chat = Create(Register(model), "chat");
  ASSERT_OK(AppendSome(chat, model, 0, 5, kSeed, Durability::kPower));
  scheduler().Sleep(50'000'000);
  Store follower = Follow();
  const std::string hint = world_->path() + "/" + engine::kHintFile;
  ASSERT_OK(AppendSome(chat, model, 5, 2, kSeed, Durability::kPower));
  ASSERT_OK(AppendSome(chat, model, 7, 1, kSeed, Durability::kProcess));  // Knows of the sync.
  scheduler().Sleep(50'000'000);
  ASSERT_OK(world_->world().files->Remove(hint));
  ASSERT_OK(follower.Refresh());
  EXPECT_EQ(7u, *follower.FindBranch("chat")->length());
  EXPECT_EQ(7u, *Follow().FindBranch("chat")->length());
  EXPECT_TRUE(HasKv(*follower.FindBranch("chat"), model, 0, 7));
}

TEST_P(FollowTest, TheWriterClosesAndAnotherOneComes) {
  const ModelSpec model = TinyModel();
  Branch chat = Create(Register(model), "chat");
  ASSERT_OK(AppendSome(chat, model, 0, 5));
  ASSERT_OK(store_.Flush());
  Store follower = Follow();
  for (uint64_t length = 5; length < 9; ++length) {
    ASSERT_OK(AppendSome(chat, model, length, 1, kSeed, Durability::kMemory));
    Reopen();
    chat = Find("chat");
    ASSERT_OK(follower.Refresh());
    EXPECT_EQ(length + 1, *follower.FindBranch("chat")->length());
  }
  ASSERT_OK(store_.Close());
  ASSERT_OK(follower.Refresh());
  EXPECT_TRUE(HasKv(*follower.FindBranch("chat"), model, 0, 9));
  ASSERT_OK_ASSIGN(const RefreshResult result, follower.Refresh());
  EXPECT_FALSE(result.changed);
}

// Bytes that only the test changes are damage, whatever a writer does beside.
TEST_P(FollowTest, DamageIsDamage) {
  const ModelSpec model = TinyModel();
  Branch chat = Create(Register(model), "chat");
  ASSERT_OK(AppendSome(chat, model, 0, 5));
  ASSERT_OK(store_.Compact());
  ASSERT_OK(AppendSome(chat, model, 5, 1, kSeed, Durability::kPower));
  Store follower = Follow();
  io::FileSystem& files = *world_->world().files;
  const std::string tables = world_->path() + "/tables/";
  ASSERT_OK_ASSIGN(const auto names, files.List(tables));
  for (const std::string& name : names) {
    if (!name.ends_with(".snapshot")) continue;
    ASSERT_OK_ASSIGN(const auto file, files.Open(tables + name, {.write = true}));
    AlignedBuffer junk =
        AlignedBuffer::TryAllocate(Allocator::Default(), io::kBlockBytes, io::kBlockBytes);
    std::fill(junk.span().begin(), junk.span().end(), std::byte{0x5a});
    ASSERT_OK(file->Write(0, junk.span(), false));
  }
  ASSERT_OK(AppendSome(chat, model, 6, 1, kSeed, Durability::kPower));
  ASSERT_OK_ASSIGN(const Branch seen, follower.FindBranch("chat"));
  EXPECT_FAILS(seen.ReadTokens(0, 5), StatusCode::kCorruption);
}

// A file's content, but of HINT, which the writer may have changed.
std::map<std::string, std::vector<std::byte>> Content(io::FileSystem& files,
                                                      const std::string& directory) {
  std::map<std::string, std::vector<std::byte>> content;
  const auto names = files.List(directory);
  for (size_t i = 0; names.ok() && i < names->size(); ++i) {
    const std::string path = directory + "/" + (*names)[i];
    const auto info = files.Info(path);
    if (!info.ok()) continue;
    if (info->is_directory) {
      content.merge(Content(files, path));
      content[path] = {};
      continue;
    }
    const auto file = files.Open(path, {});
    std::vector<std::byte> bytes(info->bytes);
    if (file.ok() && !bytes.empty()) {
      EXPECT_OK((*file)->Read(0, bytes));
    }
    content[path] = std::move(bytes);
  }
  return content;
}

TEST_P(FollowTest, ChangesNothing) {
  const ModelSpec model = TinyModel();
  Branch chat = Create(Register(model), "chat");
  ASSERT_OK(AppendSome(chat, model, 0, 40));
  ASSERT_OK(store_.Compact());
  ASSERT_OK(AppendSome(chat, model, 40, 2));
  ASSERT_OK(store_.Flush());
  scheduler().Sleep(1'000'000'000);  // The writer has come to rest.
  const auto before = Content(*world_->world().files, world_->path());
  Store follower = Follow();
  ASSERT_OK(follower.Refresh());
  EXPECT_TRUE(HasKv(*follower.FindBranch("chat"), model, 0, 42));
  EXPECT_OK(follower.Verify(VerifyLevel::kAll));
  const StoreMetrics metrics = follower.Metrics();
  uint64_t read_bytes =
      engine::kSmallFilesBytes + metrics.log_segments * world_->options().segment_bytes;
  for (const auto& [path, bytes] : before) {
    if (path.find("/tables/") != std::string::npos) read_bytes += bytes.size();
  }
  EXPECT_EQ(read_bytes, metrics.physical_bytes);
  ASSERT_OK(follower.Close());
  EXPECT_TRUE(before == Content(*world_->world().files, world_->path()));
}

// It reported damage where the writer had given files back since the reader looked.
TEST_P(FollowTest, VerifiesWhatTheWriterHasMovedMeanwhile) {
  const ModelSpec model = TinyModel();
  Branch chat = Create(Register(model), "chat");
  ASSERT_OK(AppendSome(chat, model, 0, 40));
  ASSERT_OK(store_.Flush());
  Store in_log = Follow();
  ASSERT_OK(store_.Compact());  // The log becomes a table.
  Store in_table = Follow();
  ASSERT_OK(chat.Rewind(4));
  ASSERT_OK(AppendSome(chat, model, 4, 3));
  ASSERT_OK(store_.Compact());  // The table becomes another.
  for (Store* follower : {&in_log, &in_table}) {
    for (const VerifyLevel level :
         {VerifyLevel::kHeaders, VerifyLevel::kIndex, VerifyLevel::kAll}) {
      ASSERT_OK_ASSIGN(const VerifyReport report, follower->Verify(level));
      for (const auto& damage : report.damages)
        ADD_FAILURE() << damage.where << ": " << damage.what;
    }
  }
}

// The content of a branch follows from its name and its length.
constexpr uint64_t kGrowth = 7;
std::vector<TokenId> TokensOf(const std::string& name, uint64_t begin, uint64_t end) {
  std::vector<TokenId> tokens;
  const size_t seed = std::hash<std::string>()(name);
  for (uint64_t i = begin; i < end; ++i) {
    tokens.push_back(static_cast<TokenId>((seed + i * 7919) % 200'000));
  }
  return tokens;
}
uint64_t SeedOf(const std::string& name) { return std::hash<std::string>()(name) % 1000; }

TEST_P(FollowTest, ReadsAreRightWhateverTheWriterDoes) {
  const Options options = ReopenInMotion();
  const ModelSpec model = WideModel();
  const ModelId id = Register(model);
  std::mt19937_64 random(11);
  std::map<std::string, uint64_t> lengths;  // Has the branches that exist.
  std::map<std::string, uint64_t> dropped;
  Store follower;
  int next = 0, right = 0, stale = 0;
  std::string last_stale;
  for (int round = 0; round < 400; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    // The writer.
    const uint64_t drawn = random() % 20;
    if (lengths.size() < 4) {
      const std::string name = "b" + std::to_string(next++);
      Create(id, name);
      lengths[name] = 0;
    }
    const auto any = std::next(lengths.begin(), static_cast<ptrdiff_t>(random() % lengths.size()));
    const std::string name = any->first;
    if (drawn == 0) {
      ASSERT_OK(Find(name).Drop(Durability::kPower));
      dropped[name] = any->second;
      lengths.erase(any);
    } else if (drawn == 1) {
      ASSERT_OK(store_.Compact());
    } else if (drawn == 2 && round % 3 == 0) {
      Reopen(options);
    } else if (any->second < 60) {
      const std::vector<TokenId> tokens = TokensOf(name, any->second, any->second + kGrowth);
      KvSet kv(model, Layout::kContiguous, any->second, kGrowth);
      kv.Write(SeedOf(name), any->second, any->second + kGrowth);
      Branch branch = Find(name);
      const auto level = static_cast<Durability>(random() % 3);
      ASSERT_OK(branch.AppendSync(MakeDelta(tokens, kv.View(any->second, kGrowth)),
                                  {.durability = level}));
      any->second += kGrowth;
    }
    // The follower, which is opened in the middle of it now and then.
    if (follower.core() == nullptr || random() % 50 == 0) follower = Follow();
    ASSERT_NE(nullptr, follower.core());
    if (random() % 8 == 0) {
      EXPECT_OK(follower.Refresh());
    }
    ASSERT_OK_ASSIGN(const BranchPage page, follower.ListBranches("", "", 100));
    if (page.branches.empty()) continue;
    const BranchInfo& info = page.branches[random() % page.branches.size()];
    ASSERT_TRUE(lengths.contains(info.name) || dropped.contains(info.name)) << info.name;
    const uint64_t ever = lengths.contains(info.name) ? lengths[info.name] : dropped[info.name];
    EXPECT_LE(info.length, ever);
    EXPECT_EQ(0u, info.length % kGrowth);
    ASSERT_OK_ASSIGN(const Branch seen, follower.GetBranch(info.id));
    const uint64_t end = info.length;
    const auto tokens = seen.ReadTokens(0, end);
    KvSet got(model, Layout::kContiguous, 0, std::max<uint64_t>(end, 1));
    KvSet want(model, Layout::kContiguous, 0, std::max<uint64_t>(end, 1));
    want.Write(SeedOf(info.name), 0, end);
    RestoreRequest request;
    request.end = end;
    request.into = got.View(0, end);
    const auto restored = seen.Restore(request);
    for (const Status& status : {tokens.status(), restored.status()}) {
      const bool gone = status.code() == StatusCode::kNotFound && dropped.contains(info.name);
      EXPECT_TRUE(status.ok() || status.code() == StatusCode::kStale || gone) << status.ToString();
      stale += status.code() == StatusCode::kStale;
      if (status.code() == StatusCode::kStale) last_stale = status.ToString();
    }
    if (tokens.ok()) {
      EXPECT_EQ(TokensOf(info.name, 0, end), *tokens);
    }
    if (restored.ok()) {
      EXPECT_TRUE(got == want);
    }
    right += tokens.ok() && restored.ok();
  }
  EXPECT_GT(right, 200);
  EXPECT_GT(store_.Metrics().tables, 0u);
  EXPECT_EQ(0, stale) << last_stale << "\n"
                      << "with the writer standing still while it reads, one look is enough";
  ASSERT_OK(store_.Flush());
  ASSERT_OK(follower.Refresh());
  for (const auto& [name, length] : lengths) {
    ASSERT_OK_ASSIGN(const Branch seen, follower.FindBranch(name));
    EXPECT_EQ(length, *seen.length());
  }
  for (const auto& [name, length] : dropped) {
    EXPECT_FAILS(follower.FindBranch(name), StatusCode::kNotFound);
  }
}

// The same from another thread, without the writer waiting.
TEST_P(FollowTest, ReadsAreRightWhileTheWriterGoesOn) {
  ReopenInMotion();
  const ModelSpec model = WideModel();
  const ModelId id = Register(model);
  std::atomic<bool> done{false};
  ASSERT_OK(store_.Flush());
  Store follower = Follow();
  const auto writer = scheduler().StartThread("writer", [&] {
    std::map<std::string, uint64_t> lengths;
    std::mt19937_64 random(5);
    int next = 0;
    for (int round = 0; round < 250; ++round) {
      if (lengths.size() < 3) {
        const std::string name = "b" + std::to_string(next++);
        Create(id, name);
        lengths[name] = 0;
      }
      const auto any =
          std::next(lengths.begin(), static_cast<ptrdiff_t>(random() % lengths.size()));
      const std::string name = any->first;
      if (any->second > 40) {
        EXPECT_OK(Find(name).Drop(Durability::kProcess));
        lengths.erase(any);
        continue;
      }
      const std::vector<TokenId> tokens = TokensOf(name, any->second, any->second + kGrowth);
      KvSet kv(model, Layout::kContiguous, any->second, kGrowth);
      kv.Write(SeedOf(name), any->second, any->second + kGrowth);
      Branch branch = Find(name);
      EXPECT_OK(branch.AppendSync(MakeDelta(tokens, kv.View(any->second, kGrowth)),
                                  {.durability = static_cast<Durability>(random() % 3)}));
      any->second += kGrowth;
      if (round % 40 == 0) {
        EXPECT_OK(store_.Compact());
      }
    }
    done = true;
  });
  int right = 0, behind = 0;
  uint64_t shown = 0;
  while (!done) {
    const auto result = follower.Refresh();
    EXPECT_TRUE(result.ok() || result.status().code() == StatusCode::kStale)
        << result.status().ToString();
    if (result.ok()) {
      EXPECT_LE(shown, result->sequence);
    }
    if (result.ok()) shown = result->sequence;
    const auto page = follower.ListBranches("", "", 100);
    ASSERT_OK(page);
    for (const BranchInfo& info : page->branches) {
      const auto seen = follower.GetBranch(info.id);
      if (!seen.ok()) continue;
      const auto tokens = seen->ReadTokens(0, info.length);
      KvSet got(model, Layout::kContiguous, 0, std::max<uint64_t>(info.length, 1));
      KvSet want(model, Layout::kContiguous, 0, std::max<uint64_t>(info.length, 1));
      want.Write(SeedOf(info.name), 0, info.length);
      RestoreRequest request;
      request.end = info.length;
      request.into = got.View(0, info.length);
      const auto restored = seen->Restore(request);
      for (const Status& status : {tokens.status(), restored.status()}) {
        EXPECT_TRUE(status.ok() || status.code() == StatusCode::kStale ||
                    (status.code() == StatusCode::kNotFound &&
                     status.message().find("does not exist") != std::string_view::npos))
            << status.ToString();
      }
      if (tokens.ok()) {
        EXPECT_EQ(TokensOf(info.name, 0, info.length), *tokens);
      }
      if (restored.ok()) {
        EXPECT_TRUE(got == want);
      }
      right += tokens.ok() && restored.ok();
      behind += !tokens.ok() || !restored.ok();
    }
    scheduler().Sleep(200'000);
  }
  EXPECT_GT(right, behind);
}

INSTANTIATE_TEST_SUITE_P(Worlds, FollowTest, ::testing::ValuesIn(TestWorld::Names()), NameOf);

}  // namespace
}  // namespace cairn::testing
