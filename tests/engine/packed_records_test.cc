// SPDX-License-Identifier: Apache-2.0
//
// Property: KV that gets smaller is packed when it is appended, takes fewer bytes in the log, and
// comes back bit for bit wherever it is read from and whatever part is asked for; what does not get
// smaller, or must not be packed, stays as it is.
// Method: content whose exponents lie close to each other, in a simulated store, read from the hot
// tail, from the log, and from tables.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/commit/packed_lane.h"
#include "engine/commit/slice_frames.h"
#include "engine/config/constants.h"
#include "sim/world.h"
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

using engine::SliceFrames;

constexpr uint64_t kSmooth = kSeed | kPackable;

ModelSpec ModelOf(LayerGroup group) {
  ModelSpec model;
  model.identity.name = "one group";
  model.groups = {std::move(group)};
  return model;
}

// Shapes whose frames are whole heads, parts of a head, or some heads and a rest.
std::vector<ModelSpec> Shapes() {
  return {ModelOf(LayerGroup::FullAttention(4, 8, 128, Dtype::kBf16)),
          ModelOf(LayerGroup::FullAttention(2, 3, 96, Dtype::kF16)),
          ModelOf(LayerGroup::Mla(3, 512, 64, Dtype::kBf16)),
          ModelOf(LayerGroup::FullAttention(1, 2, 20, Dtype::kBf16)), WideModel()};
}

class PackedRecordsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (BestCodecPath() == CodecPath::kScalar) GTEST_SKIP() << "this processor packs slowly";
    options_ = TinyOptions();
    options_.segment_bytes = 8 << 20;
    options_.hot_tail_bytes = 16 << 20;
    options_.max_memory_bytes = 128 << 20;
  }
  void Open() {
    machine_ = std::make_unique<io::SimWorld>(io::MakeSimWorld(1));
    options_.world = std::make_shared<io::World>(machine_->world());
    ASSERT_OK_ASSIGN(store_, Store::Open("/store", options_));
  }
  // Nothing of it is in memory then.
  void Reopen() {
    ASSERT_OK(store_.Close());
    ASSERT_OK_ASSIGN(store_, Store::Open("/store", options_));
    ASSERT_OK_ASSIGN(chat_, store_.FindBranch("chat"));
  }
  void Start(const ModelSpec& model) {
    store_ = Store();
    Open();
    ASSERT_OK_ASSIGN(const ModelId id, store_.RegisterModel(model));
    ASSERT_OK_ASSIGN(chat_, store_.CreateBranch(id, {.name = "chat"}));
  }
  // Bytes that an append takes in the log, of those that it has.
  double LoggedShare(const ModelSpec& model, uint64_t begin, uint64_t count, uint64_t seed) {
    EXPECT_OK(store_.Flush());
    const uint64_t before = store_.Metrics().log_bytes_written;
    EXPECT_OK(AppendSome(chat_, model, begin, count, seed));
    EXPECT_OK(store_.Flush());
    return static_cast<double>(store_.Metrics().log_bytes_written - before) /
           static_cast<double>(count * model.token_bytes());
  }
  ::testing::AssertionResult HasParts(const ModelSpec& model, uint64_t end) {
    for (const auto& [first, last] : std::vector<std::pair<uint64_t, uint64_t>>{
             {0, end}, {0, 1}, {end - 1, end}, {end / 3, end / 2 + 1}, {1, end - 1}}) {
      auto has = HasKv(chat_, model, first, last, kSmooth);
      if (!has) return has << " in [" << first << ", " << last << ")";
    }
    return ::testing::AssertionSuccess();
  }

  std::unique_ptr<io::SimWorld> machine_;
  Options options_;
  Store store_;
  Branch chat_;
};

TEST_F(PackedRecordsTest, ComesBackFromEverywhere) {
  for (const ModelSpec& model : Shapes()) {
    for (const uint64_t count : {17u, 130u, 700u}) {
      SCOPED_TRACE(std::to_string(model.token_bytes()) + " bytes, " + std::to_string(count));
      Start(model);
      const bool pays = engine::PackingPays(model.groups[0], count);
      EXPECT_EQ(pays, LoggedShare(model, 0, count, kSmooth) < 0.85);
      EXPECT_TRUE(HasParts(model, count)) << "out of the hot tail";
      Reopen();
      EXPECT_TRUE(HasParts(model, count)) << "out of the log";
      EXPECT_TRUE(HasParts(model, count)) << "again";
      ASSERT_OK_ASSIGN(const VerifyReport report, store_.Verify(VerifyLevel::kAll));
      EXPECT_TRUE(report.damages.empty());
      ASSERT_OK(store_.Compact());
      EXPECT_TRUE(HasParts(model, count)) << "out of tables";
    }
  }
}

TEST_F(PackedRecordsTest, EveryLayoutIsGatheredAndScattered) {
  const ModelSpec model = WideModel();
  uint64_t end = 0;
  Start(model);
  for (const Layout layout : AllLayouts()) {
    KvSet kv(model, layout, end, 40);
    kv.Write(kSmooth, end, end + 40);
    const std::vector<TokenId> tokens = Tokens(40, end);
    ASSERT_OK(chat_.AppendSync(MakeDelta(tokens, kv.View(end, 40))));
    end += 40;
  }
  for (const bool hot : {true, false}) {
    if (!hot) Reopen();
    for (const Layout layout : AllLayouts()) {
      KvSet got(model, layout, 0, end), want(model, layout, 0, end);
      want.Write(kSmooth, 4, end - 5);
      RestoreRequest request;
      request.begin = 4;
      request.end = end - 5;
      request.into = got.View(4, end - 9);
      ASSERT_OK(chat_.Restore(request));
      EXPECT_TRUE(got == want) << LayoutName(layout) << (hot ? ", hot" : ", from the log");
    }
  }
}

TEST_F(PackedRecordsTest, ReadAgainTheyComeOutOfThePageCache) {
  const ModelSpec model = WideModel();
  Start(model);
  ASSERT_OK(AppendSome(chat_, model, 0, 200, kSmooth));
  ASSERT_OK(AppendSome(chat_, model, 200, 50, kSeed));  // Rows.
  Reopen();
  const auto restored = [&](uint64_t begin, uint64_t end) {
    KvSet got(model, Layout::kNhd, 0, 250), want(model, Layout::kNhd, 0, 250);
    want.Write([](uint64_t at) { return at < 200 ? kSmooth : kSeed; }, begin, end);
    std::vector<TokenId> tokens(end - begin);
    RestoreRequest request;
    request.begin = begin;
    request.end = end;
    request.tokens = tokens;
    request.into = got.View(begin, end - begin);
    const auto result = chat_.Restore(request);
    EXPECT_OK(result);
    EXPECT_TRUE(got == want);
    const auto ids = chat_.ReadTokens(begin, end);
    EXPECT_TRUE(ids.ok() && *ids == tokens);
    return result->hot_bytes;
  };
  for (int i = 0; i < 2; ++i) restored(0, 250);
  const uint64_t read = store_.Metrics().restored_log_bytes;
  EXPECT_EQ(250 * model.token_bytes(), restored(0, 250));
  EXPECT_EQ(30 * model.token_bytes(), restored(190, 220)) << "a part";
  EXPECT_EQ(read, store_.Metrics().restored_log_bytes);
}

TEST_F(PackedRecordsTest, SomeLayersAlone) {
  const ModelSpec model = ModelOf(LayerGroup::FullAttention(6, 2, 64, Dtype::kBf16));
  Start(model);
  ASSERT_OK(AppendSome(chat_, model, 0, 20, kSmooth));  // Two layers to a strip of 4 KiB and more.
  Reopen();
  for (uint32_t first = 0; first < 6; ++first) {
    KvPool got(model.groups[0], 0, Layout::kHnd, 0, 20),
        want(model.groups[0], 0, Layout::kHnd, 0, 20);
    want.Write([](uint64_t) { return kSmooth; }, 0, 20, first, 1);
    const GroupView group = got.View(0, 20, first, 1);
    KvView view;
    view.groups = {&group, 1};
    RestoreRequest request;
    request.end = 20;
    request.into = &view;
    ASSERT_OK(chat_.Restore(request));
    EXPECT_EQ(want.memory(), got.memory()) << "layer " << first;
  }
}

TEST_F(PackedRecordsTest, WhatDoesNotGetSmallerStaysAsItIs) {
  const ModelSpec wide = WideModel();
  Start(wide);
  EXPECT_GT(LoggedShare(wide, 0, 64, kSeed), 1.0) << "incompressible";
  EXPECT_GT(LoggedShare(wide, 64, 4, kSmooth), 0.99) << "slices of 2 KiB";
  EXPECT_LT(LoggedShare(wide, 68, 64, kSmooth), 0.85);
  Reopen();
  EXPECT_TRUE(HasKv(chat_, wide, 0, 64, kSeed));
  EXPECT_TRUE(HasKv(chat_, wide, 64, 132, kSmooth));

  ModelSpec lossy = wide;
  for (Plane& plane : lossy.groups[0].planes) plane.sealed_as = SealedAs::kInt8;
  Start(lossy);
  EXPECT_GT(LoggedShare(lossy, 0, 64, kSmooth), 1.0) << "exact until it is sealed";
  Reopen();
  EXPECT_TRUE(HasKv(chat_, lossy, 0, 64, kSmooth));

  const ModelSpec floats = ModelOf(LayerGroup::FullAttention(2, 4, 64, Dtype::kF32));
  Start(floats);
  EXPECT_GT(LoggedShare(floats, 0, 64, kSmooth), 1.0) << "no 16-bit floats";
}

TEST_F(PackedRecordsTest, WithoutStagingMemoryRowsStayAsTheyAre) {
  const ModelSpec model = WideModel();
  options_.max_memory_bytes = 16 << 20;
  options_.hot_tail_bytes = 4 << 20;
  Start(model);
  std::vector<Draft> drafts;  // Of 128 KiB each.
  while (true) {
    auto draft = chat_.BeginAppend(16);
    if (!draft.ok()) break;
    drafts.push_back(*std::move(draft));
  }
  EXPECT_GT(drafts.size(), 4u);
  EXPECT_GT(LoggedShare(model, 0, 32, kSmooth), 1.0);
  EXPECT_TRUE(HasKv(chat_, model, 0, 32, kSmooth));
  drafts.clear();
  EXPECT_LT(LoggedShare(model, 32, 32, kSmooth), 0.85);
}

TEST_F(PackedRecordsTest, PartsOfALargeAppendArePacked) {
  const ModelSpec model = WideModel();
  Start(model);
  constexpr uint64_t kTokens = 1500;  // 12 MiB, in three parts.
  EXPECT_LT(LoggedShare(model, 0, kTokens, kSmooth), 0.85);
  EXPECT_TRUE(HasParts(model, kTokens));
  Reopen();
  EXPECT_TRUE(HasParts(model, kTokens));
}

TEST_F(PackedRecordsTest, FilledPositionsArePacked) {
  const ModelSpec model = WideModel();
  Start(model);
  const std::vector<TokenId> tokens = Tokens(200);
  ASSERT_OK(chat_.AppendSync(MakeDelta(tokens)));
  KvSet kv(model, Layout::kNhd, 0, 200);
  kv.Write(kSmooth, 0, 200);
  const uint64_t before = store_.Metrics().log_bytes_written;
  ASSERT_OK(chat_.Fill(*kv.View(0, 200), {.durability = Durability::kProcess}));
  EXPECT_LT(store_.Metrics().log_bytes_written - before, 200 * model.token_bytes() * 85 / 100);
  Reopen();
  EXPECT_TRUE(HasParts(model, 200));
}

TEST_F(PackedRecordsTest, AForkAndARewindKeepTheirParts) {
  const ModelSpec model = WideModel();
  Start(model);
  ASSERT_OK(AppendSome(chat_, model, 0, 300, kSmooth));
  ASSERT_OK_ASSIGN(Branch fork, chat_.ForkAt(77, {.name = "fork"}));
  ASSERT_OK(chat_.Rewind(30));
  ASSERT_OK(AppendSome(fork, model, 77, 40, kSmooth));
  Reopen();
  ASSERT_OK_ASSIGN(fork, store_.FindBranch("fork"));
  EXPECT_TRUE(HasKv(chat_, model, 0, 30, kSmooth));
  EXPECT_TRUE(HasKv(fork, model, 0, 117, kSmooth));
}

// ---------------------------------------------------------------- the cut, and hostile strips

TEST(SliceFramesTest, TheCutCoversASliceOnce) {
  for (const ModelSpec& model : Shapes()) {
    for (const Plane& plane : model.groups[0].planes) {
      for (const uint64_t count : {1u, 2u, 15u, 16u, 255u, 256u, 257u, 1000u, 9999u}) {
        const SliceFrames frames(plane, count);
        uint64_t end = 0;
        for (uint32_t i = 0; i < frames.size(); ++i) {
          const SliceFrames::Frame frame = frames.At(i);
          EXPECT_EQ(end, frame.offset);
          EXPECT_EQ(frame.heads * frame.positions, frame.shape.rows);
          EXPECT_TRUE(frame.heads == 1 || frame.positions == count);
          EXPECT_TRUE(frame.shape.rows == 1 ||
                      frame.shape.raw_bytes() <= engine::kPackedFrameBytes);
          end += frame.shape.raw_bytes();
        }
        EXPECT_EQ(SliceBytes(plane, count), end);
      }
    }
  }
}

class HostileStripTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < 2; ++i) {
      std::vector<std::byte> raw(shape_.raw_bytes(), std::byte{0x3C});
      raw[7] = std::byte{1};
      std::vector<std::byte> frame(MaxFrameBytes(shape_));
      frame.resize(EncodeFrame(shape_, raw, frame));
      frame.resize((frame.size() + 63) / 64 * 64);
      strip_.insert(strip_.end(), frame.begin(), frame.end());
    }
  }
  Status Walk(std::span<const std::byte> strip) {
    engine::StripFrames frames(strip);
    for (int i = 0; i < 2; ++i) CAIRN_RETURN_IF_ERROR(frames.Next(shape_).status());
    return frames.End();
  }
  const FrameShape shape_{64, 64, Dtype::kBf16};
  std::vector<std::byte> strip_;
};

TEST_F(HostileStripTest, FramesThatLeadBeyondTheirStrip) {
  EXPECT_OK(Walk(strip_));
  for (const size_t bytes :
       {size_t{0}, size_t{15}, size_t{16}, size_t{64}, strip_.size() / 2, strip_.size() - 64}) {
    EXPECT_EQ(StatusCode::kCorruption, Walk(std::span(strip_).first(bytes)).code()) << bytes;
  }
  std::vector<std::byte> longer = strip_;
  longer.resize(strip_.size() + 64);
  EXPECT_FAILS(Walk(longer), StatusCode::kCorruption, "they end at");
  for (const uint32_t payload : {0u, 1u << 20, UINT32_MAX}) {
    std::vector<std::byte> forged = strip_;
    std::memcpy(forged.data() + 12, &payload, sizeof payload);
    EXPECT_FALSE(Walk(forged).ok()) << payload;
  }
}

TEST_F(HostileStripTest, FramesOfAnotherShapeOrVersion) {
  const uint32_t rows = 63;
  std::vector<std::byte> forged = strip_;
  std::memcpy(forged.data() + 4, &rows, sizeof rows);
  EXPECT_FAILS(Walk(forged), StatusCode::kCorruption, "it holds 63 x 64");
  forged = strip_;
  forged[3] = std::byte{9};
  EXPECT_FAILS(Walk(forged), StatusCode::kUnsupportedFormat, "version 9");
}

}  // namespace
}  // namespace cairn::testing
