// SPDX-License-Identifier: Apache-2.0
//
// Property: a full segment that leaves the log stays where it is for the content that lies in it,
// is read like any other, goes when nothing needs it, and content moves to tables only where that
// pays. Damage of its file costs what it holds and is named.
// Method: a small store on a simulated disk whose log is much shorter than what is appended, so
// that most segments rest.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "base/codec/kv_frame.h"
#include "engine/manifest/manifest.h"
#include "engine/restore/pins.h"
#include "engine/store/store_core.h"
#include "sim/world.h"
#include "tests/engine/engine_test.h"
#include "wal/segment_files.h"

namespace cairn::testing {
namespace {

constexpr uint64_t kSegment = 256 << 10;
constexpr uint64_t kSecond = 1'000'000'000;

class RestingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    options_ = TinyOptions();
    options_.segment_bytes = kSegment;
    options_.log_bytes_max = 8 * kSegment;
    options_.world = std::make_shared<io::World>(machine_.world());
    Open();
    ASSERT_OK_ASSIGN(model_id_, store_.RegisterModel(model_));
    chat_ = Create("chat");
    other_ = Create("other");
  }
  void Open() { ASSERT_OK_ASSIGN(store_, Store::Open("/store", options_)); }
  void Reopen() {
    ASSERT_OK(store_.Close());
    Open();
    ASSERT_OK_ASSIGN(chat_, store_.FindBranch("chat"));
    ASSERT_OK_ASSIGN(other_, store_.FindBranch("other"));
  }
  Branch Create(const std::string& name) {
    auto made = store_.CreateBranch(model_id_, {.name = name});
    EXPECT_OK(made);
    return made.ok() ? *made : Branch();
  }
  // Segments in which two branches lie side by side, `each` positions of 8 KiB at once. While
  // somebody appends the log is never idle.
  void Fill(uint64_t positions, uint64_t each = 8) {
    for (const uint64_t end = length_ + positions; length_ < end; length_ += each) {
      ASSERT_OK(AppendSome(chat_, model_, length_, each, seed_));
      ASSERT_OK(AppendSome(other_, model_, length_, each, seed_));
    }
    AwaitRound();
  }
  void AwaitRound() { machine_.scheduler->Sleep(50'000'000); }
  void FillSoThatSomeRest() {
    Fill(512);  // 8 MiB: four times the log.
    ASSERT_GT(Resting(), 16u);
  }
  uint64_t Resting() { return store_.Metrics().log_resting_segments; }
  bool HasAll() {
    return HasKv(chat_, model_, 0, length_, seed_) && HasKv(other_, model_, 0, length_, seed_);
  }
  engine::Manifest ManifestNow() {
    auto manifest = engine::ReadManifest(*machine_.world().files, "/store");
    EXPECT_OK(manifest);
    return manifest.ok() ? *manifest : engine::Manifest();
  }
  std::string FirstResting() {
    const engine::Manifest manifest = ManifestNow();
    EXPECT_FALSE(manifest.resting.empty());
    return wal::SegmentPath("/store/log", manifest.resting.front().number);
  }
  size_t FilesBelowTheLog() {
    const uint64_t first = ManifestNow().log_start_segment;
    const auto found = wal::ListLogDirectory(*machine_.world().files, "/store/log");
    EXPECT_OK(found);
    size_t count = 0;
    for (const uint64_t segment : found->segments) count += segment < first ? 1 : 0;
    return count;
  }
  std::string Damages() {
    const auto report = store_.Verify(VerifyLevel::kAll);
    EXPECT_OK(report);
    std::string text;
    for (const auto& damage : report->damages) text += damage.where + ": " + damage.what + "\n";
    return text;
  }

  const ModelSpec model_ = WideModel();
  const io::SimWorld machine_ = io::MakeSimWorld(1);
  Options options_;
  Store store_;
  ModelId model_id_{};
  Branch chat_, other_;
  uint64_t length_ = 0;
  uint64_t seed_ = kSeed;
};

TEST_F(RestingTest, ContentStaysWhereItWasWritten) {
  FillSoThatSomeRest();
  const StoreMetrics metrics = store_.Metrics();
  EXPECT_EQ(0u, metrics.seals) << "nothing had to move";
  EXPECT_EQ(0u, metrics.tables);
  EXPECT_EQ(metrics.retired_segments, metrics.log_resting_segments);
  EXPECT_LT(metrics.log_bytes_written, length_ * 2 * (8 << 10) * 11 / 10);
  EXPECT_TRUE(HasAll());
  EXPECT_EQ("", Damages());
  EXPECT_EQ(Resting(), FilesBelowTheLog());
}

TEST_F(RestingTest, ReopeningReplaysNoneAndForgetsNone) {
  FillSoThatSomeRest();
  const uint64_t resting = Resting();
  const uint64_t physical = store_.Metrics().physical_bytes;
  Reopen();
  EXPECT_EQ(resting, Resting());
  EXPECT_TRUE(HasAll());
  EXPECT_LE(store_.Metrics().replayed_records, options_.replay_records_max);
  EXPECT_GE(store_.Metrics().physical_bytes + 4 * kSegment, physical) << "their bytes count";
  EXPECT_EQ("", Damages());
}

TEST_F(RestingTest, TheyGoWhenNothingNeedsThem) {
  FillSoThatSomeRest();
  ASSERT_OK(chat_.Drop());
  AwaitRound();
  EXPECT_GT(Resting(), 0u) << "the other branch lies in them, too";
  EXPECT_TRUE(HasKv(other_, model_, 0, length_));
  ASSERT_OK(other_.Drop());
  machine_.scheduler->Sleep(kSecond);
  EXPECT_EQ(0u, Resting());
  EXPECT_EQ(0u, FilesBelowTheLog());
  EXPECT_EQ("", Damages());
}

TEST_F(RestingTest, AReaderHoldsTheFileThatItReads) {
  FillSoThatSomeRest();
  const engine::Manifest manifest = ManifestNow();
  const uint64_t held = manifest.resting[3].number;
  auto pin = store_.core()->reader().pins().Take({engine::Pins::Of::kNode, 5}, {held}, {});
  ASSERT_OK(chat_.Drop());
  ASSERT_OK(other_.Drop());
  machine_.scheduler->Sleep(kSecond);
  EXPECT_EQ(1u, Resting()) << "and no other";
  pin.reset();
  machine_.scheduler->Sleep(kSecond);
  EXPECT_EQ(0u, Resting());
}

TEST_F(RestingTest, CompactPacksAll) {
  FillSoThatSomeRest();
  ASSERT_OK(store_.Compact());
  EXPECT_EQ(0u, Resting());
  EXPECT_GT(store_.Metrics().tables, 0u);
  EXPECT_EQ(0u, FilesBelowTheLog());
  EXPECT_TRUE(HasAll());
  Reopen();
  EXPECT_TRUE(HasAll());
  EXPECT_EQ("", Damages());
}

TEST_F(RestingTest, PackedOnesStayUntilTheyAreDead) {
  if (BestCodecPath() == CodecPath::kScalar) GTEST_SKIP() << "this processor packs slowly";
  seed_ = kSeed | kPackable;
  FillSoThatSomeRest();
  const uint64_t full = Resting();
  machine_.scheduler->Sleep(60 * kSecond);
  EXPECT_LE(store_.Metrics().packed_segments, 1u) << "the first has little of what is packed";
  ASSERT_OK(store_.Compact());
  EXPECT_GE(Resting() + 1, full) << "neither makes that the others smaller";
  EXPECT_TRUE(HasAll());
  const uint64_t physical = store_.Metrics().physical_bytes;
  EXPECT_LT(Resting() * kSegment, length_ * 2 * model_.token_bytes() * 85 / 100);
  Reopen();
  EXPECT_TRUE(HasAll());
  EXPECT_EQ("", Damages());

  ASSERT_OK(other_.Drop());
  ASSERT_OK(store_.Compact());
  EXPECT_EQ(0u, Resting()) << "half of each was dead";
  EXPECT_LT(store_.Metrics().physical_bytes, physical * 3 / 4);
  EXPECT_TRUE(HasKv(chat_, model_, 0, length_, seed_));
}

TEST_F(RestingTest, IdleTimePacksWhatIsFull) {
  FillSoThatSomeRest();
  for (int i = 0; i < 600 && Resting() != 0; ++i) machine_.scheduler->Sleep(kSecond / 10);
  const StoreMetrics metrics = store_.Metrics();
  EXPECT_EQ(0u, metrics.log_resting_segments);
  EXPECT_GT(metrics.packed_segments, 24u) << "also those that were still in the log";
  EXPECT_GE(metrics.log_segments, 4u) << "which leave it when it is long";
  EXPECT_TRUE(HasAll());
  EXPECT_EQ("", Damages());
}

// Opaque bytes are not packed: a few rows of each segment show that, and it stays.
class OpaqueRestingTest : public RestingTest {
 protected:
  void SetUp() override {
    RestingTest::SetUp();
    for (Plane& plane : opaque_.groups[0].planes) {
      plane.dtype = Dtype::kOpaque;
      plane.rotary = {};
    }
    ASSERT_OK_ASSIGN(const ModelId id, store_.RegisterModel(opaque_));
    ASSERT_OK_ASSIGN(bytes_, store_.CreateBranch(id, {.name = "bytes"}));
    for (uint64_t at = 0; at < 900; at += 30) ASSERT_OK(AppendSome(bytes_, opaque_, at, 30));
    AwaitRound();
    ASSERT_GT(Resting(), 16u);
  }

  ModelSpec opaque_ = WideModel("opaque");
  Branch bytes_;
};

TEST_F(OpaqueRestingTest, IdleTimeMovesNone) {
  for (int i = 0; i < 100; ++i) machine_.scheduler->Sleep(kSecond / 10);
  EXPECT_LE(store_.Metrics().packed_segments, 1u) << "the first has little of it";
  EXPECT_GT(Resting(), 16u);
  EXPECT_TRUE(HasKv(bytes_, opaque_, 0, 900));
}

// Compact wrote every byte of it a second time.
TEST_F(OpaqueRestingTest, CompactMovesTheRestAlone) {
  for (int i = 0; i < 2; ++i) {
    const uint64_t resting = Resting();
    ASSERT_OK(store_.Compact());
    EXPECT_GE(Resting(), resting);
    EXPECT_LT(store_.Metrics().sealed_bytes, 4 * kSegment);
    EXPECT_TRUE(HasKv(bytes_, opaque_, 0, 900));
    EXPECT_EQ("", Damages());
    Reopen();
    ASSERT_OK_ASSIGN(bytes_, store_.FindBranch("bytes"));
  }
}

// Rows that cannot be read say nothing of the others: sealing them says what is damaged.
TEST_F(OpaqueRestingTest, CompactReportsWhatATrialCannotRead) {
  const std::string path = ManifestNow().resting.empty() ? "" : FirstResting();
  ASSERT_OK_ASSIGN(const auto info, machine_.disk->Info(path));
  for (uint64_t at = 8192; at < info.bytes; at += 1024) {
    ASSERT_OK(machine_.disk->FlipBit(path, at, 1));
  }
  EXPECT_FAILS(store_.Compact(), StatusCode::kCorruption, path.substr(path.rfind('/') + 1));
  EXPECT_GT(Resting(), 16u);
}

// Less than nine tenths of it are needed: moving them frees more than it costs.
TEST_F(OpaqueRestingTest, CompactMovesWhatIsPartlyDead) {
  ASSERT_OK(bytes_.Drop());
  ASSERT_OK(store_.Compact());
  EXPECT_EQ(0u, Resting());
}

TEST_F(RestingTest, MostlyDeadOnesArePacked) {
  Branch dies = Create("dies");
  for (int i = 0; i < 64; ++i) {  // A third of each segment stays.
    ASSERT_OK(AppendSome(dies, model_, 16 * static_cast<uint64_t>(i), 16));
    ASSERT_OK(AppendSome(chat_, model_, length_, 8));
    length_ += 8;
  }
  AwaitRound();
  const uint64_t before = Resting();
  ASSERT_GT(before, 16u);
  ASSERT_OK(dies.Drop());
  // Goes on writing: the log is not idle.
  uint64_t at = 0;
  for (int i = 0; i < 50 && Resting() > before / 3; ++i, at += 8) {
    ASSERT_OK(AppendSome(other_, model_, at, 8));
    AwaitRound();
  }
  EXPECT_LE(Resting(), before / 3);
  EXPECT_GT(store_.Metrics().packed_segments, before / 2);
  EXPECT_TRUE(HasKv(chat_, model_, 0, length_));
  EXPECT_EQ("", Damages());
}

TEST_F(RestingTest, SmallPiecesAreSealed) {
  // 64 KiB of a page of one token each: 512 bytes a piece.
  ModelSpec small = TinyModel();
  ASSERT_OK_ASSIGN(const ModelId id, store_.RegisterModel(small));
  ASSERT_OK_ASSIGN(Branch tokens, store_.CreateBranch(id, {.name = "tokens"}));
  for (uint64_t at = 0; at < 3000; ++at) ASSERT_OK(AppendSome(tokens, small, at, 1));
  machine_.scheduler->Sleep(kSecond / 10);
  EXPECT_GT(store_.Metrics().retired_segments, 4u);
  EXPECT_EQ(0u, Resting());
  EXPECT_TRUE(HasKv(tokens, small, 0, 3000));
}

// A copy shares the files. They are never written again, so what becomes of the store does not
// change the copy.
TEST_F(RestingTest, ACopySharesThem) {
  FillSoThatSomeRest();
  ASSERT_OK_ASSIGN(const CheckpointInfo info, store_.Checkpoint("/copy"));
  EXPECT_GE(info.linked_bytes, Resting() * kSegment);
  const uint64_t copied = length_;
  Fill(256);
  ASSERT_OK(chat_.Drop());
  ASSERT_OK(store_.Compact());
  ASSERT_OK_ASSIGN(Store copy, Store::Open("/copy", options_));
  ASSERT_OK_ASSIGN(const Branch chat, copy.FindBranch("chat"));
  EXPECT_TRUE(HasKv(chat, model_, 0, copied));
  const auto report = copy.Verify(VerifyLevel::kAll);
  ASSERT_OK(report);
  EXPECT_TRUE(report->damages.empty());
}

TEST_F(RestingTest, AFollowerReadsThemAndLetsThemGo) {
  FillSoThatSomeRest();
  ASSERT_OK(store_.Flush());
  Options options = options_;
  options.read_only = true;
  options.create_if_missing = false;
  ASSERT_OK_ASSIGN(Store follower, Store::Open("/store", options));
  ASSERT_OK_ASSIGN(const Branch chat, follower.FindBranch("chat"));
  EXPECT_EQ(Resting(), follower.Metrics().log_resting_segments);
  EXPECT_TRUE(HasKv(chat, model_, 0, length_));
  ASSERT_OK(store_.Compact());
  EXPECT_TRUE(HasKv(chat, model_, 0, length_)) << "it finds where the writer has moved it";
  ASSERT_OK(follower.Refresh());
  EXPECT_EQ(0u, follower.Metrics().log_resting_segments);
}

TEST_F(RestingTest, DamageIsNamedAndCostsWhatItHolds) {
  FillSoThatSomeRest();
  const std::string path = FirstResting();
  ASSERT_OK(store_.Close());
  const auto whole = machine_.disk->ReadRaw(path);
  ASSERT_OK(whole);
  const auto is_named = [&](const std::string& what) {
    Open();
    ASSERT_OK_ASSIGN(chat_, store_.FindBranch("chat"));
    const std::string damages = Damages();
    EXPECT_NE(std::string::npos, damages.find(path.substr(sizeof("/store")))) << damages;
    EXPECT_NE(std::string::npos, damages.find(what)) << damages;
    ASSERT_OK(store_.Close());
  };
  // The payload: what a restore meets.
  ASSERT_OK(machine_.disk->FlipBit(path, kSegment / 2, 3));
  Open();
  ASSERT_OK_ASSIGN(chat_, store_.FindBranch("chat"));
  ASSERT_OK_ASSIGN(other_, store_.FindBranch("other"));
  const bool first = !HasKv(chat_, model_, 0, length_), second = !HasKv(other_, model_, 0, length_);
  EXPECT_TRUE(first || second);
  Branch& damaged = first ? chat_ : other_;
  KvSet kv(model_, Layout::kContiguous, 0, length_);
  RestoreRequest request{.end = length_};
  request.into = kv.View(0, length_);
  EXPECT_FAILS(damaged.Restore(request), StatusCode::kCorruption,
               path.substr(sizeof("/store")).c_str());
  ASSERT_OK(store_.Close());
  is_named("strip");
  ASSERT_OK(machine_.disk->WriteRaw(path, 0, *whole));
  // The header, a group, a file cut short, and none.
  ASSERT_OK(machine_.disk->FlipBit(path, 100, 3));
  is_named("offset 0: segment header");
  ASSERT_OK(machine_.disk->WriteRaw(path, 0, *whole));
  ASSERT_OK(machine_.disk->FlipBit(path, 4096 + 20, 3));
  is_named("offset 4096");
  ASSERT_OK(machine_.disk->WriteRaw(path, 0, *whole));
  ASSERT_OK(machine_.disk->TruncateRaw(path, kSegment / 2));
  is_named("shorter");
  ASSERT_OK(machine_.disk->Remove(path));
  is_named("ENOENT");
}

// The opening removes what a crash left between the manifest that forgets a file and its removal.
TEST_F(RestingTest, AFileThatNothingNamesIsRemoved) {
  FillSoThatSomeRest();
  const std::string path = FirstResting();
  const auto whole = machine_.disk->ReadRaw(path);
  ASSERT_OK(whole);
  ASSERT_OK(store_.Compact());
  ASSERT_OK(store_.Close());
  {
    const auto file = machine_.world().files->Open(path, {.write = true, .create = true});
    ASSERT_OK(file);
    ASSERT_OK((*file)->Write(0, *whole, /*durable=*/true));
  }
  EXPECT_EQ(1u, FilesBelowTheLog());
  Open();
  EXPECT_EQ(0u, FilesBelowTheLog());
}

// What made them useless may be lost with the power as long as it is not durable.
TEST_F(RestingTest, APowerLossLeavesNoBranchWithoutItsContent) {
  FillSoThatSomeRest();
  ASSERT_OK(store_.Flush());
  ASSERT_OK(chat_.Drop(Durability::kMemory));
  ASSERT_OK(other_.Drop(Durability::kMemory));
  for (int i = 0; i < 1000 && Resting() != 0; ++i) machine_.scheduler->Sleep(kSecond / 1000);
  ASSERT_EQ(0u, Resting());
  const io::SimWorld after = io::CrashWorld(*machine_.disk, io::CrashChoice::LoseAll());
  options_.world = std::make_shared<io::World>(after.world());
  ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options_));
  for (const char* name : {"chat", "other"}) {
    const auto branch = store.FindBranch(name);
    if (branch.ok()) {
      EXPECT_TRUE(HasKv(*branch, model_, 0, length_)) << name;
    }
  }
}

// The manifest forgets a file before it goes, so while none can be written all files stay.
TEST_F(RestingTest, NoFileGoesThatTheManifestNames) {
  FillSoThatSomeRest();
  const uint64_t resting = Resting();
  machine_.disk->AddFault({.when =
                               [](const io::SimOperation& operation) {
                                 return operation.changes_world() &&
                                        operation.path.find("MANIFEST") != std::string::npos;
                               },
                           .error = 5,
                           .persistent = true});
  ASSERT_OK(chat_.Drop());
  ASSERT_OK(other_.Drop());
  machine_.scheduler->Sleep(kSecond);
  EXPECT_EQ(resting, Resting());
  EXPECT_EQ(resting, FilesBelowTheLog());
  machine_.disk->ClearFaults();
  machine_.scheduler->Sleep(kSecond);
  ASSERT_OK(store_.Compact());
  EXPECT_EQ(0u, Resting());
  EXPECT_EQ(0u, FilesBelowTheLog());
}

// A library that did not count has left no list: what it wrote is sealed, and new segments rest.
TEST_F(RestingTest, SegmentsOfAnEarlierLibraryAreSealed) {
  Fill(64);
  ASSERT_OK(store_.Close());
  engine::Manifest manifest = ManifestNow();
  ASSERT_TRUE(manifest.resting.empty());
  EXPECT_EQ(1u, manifest.counted_from);
  manifest.counted_from = engine::kCountsNone;
  ++manifest.number;
  ASSERT_OK(engine::WriteManifest(*machine_.world().files, "/store", manifest));
  Open();
  ASSERT_OK_ASSIGN(chat_, store_.FindBranch("chat"));
  ASSERT_OK_ASSIGN(other_, store_.FindBranch("other"));
  EXPECT_GT(ManifestNow().counted_from, 1u);
  FillSoThatSomeRest();
  EXPECT_GT(store_.Metrics().seals, 0u);
  for (const wal::RestingSegment& segment : ManifestNow().resting) {
    EXPECT_GE(segment.number, ManifestNow().counted_from);
  }
  EXPECT_TRUE(HasAll());
  EXPECT_EQ("", Damages());
}

TEST_F(RestingTest, ACapIsKeptByPacking) {
  ASSERT_OK(store_.Close());
  ASSERT_OK(machine_.world().files->CreateDirectory("/small"));
  options_.max_bytes = 24 * kSegment;
  options_.evict = Evict::kKv;
  ASSERT_OK_ASSIGN(store_, Store::Open("/small", options_));
  ASSERT_OK_ASSIGN(model_id_, store_.RegisterModel(model_));
  chat_ = Create("chat");
  other_ = Create("other");
  Fill(768);  // Twice the cap.
  EXPECT_LE(store_.Metrics().physical_bytes, options_.max_bytes);
  EXPECT_GT(store_.Metrics().evicted_bytes + store_.Metrics().packed_segments, 0u);
}

}  // namespace
}  // namespace cairn::testing
