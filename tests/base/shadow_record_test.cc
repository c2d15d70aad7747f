// SPDX-License-Identifier: Apache-2.0
//
// Property: base/shadow gives the bits that are on record in tests/base/shadow_record.txt; so does
// the same arithmetic in numpy, tools/shadow_quality/oracle.py, which
// api/python/tests/test_shadow_oracle.py holds to the same record. Method: rows that follow from a
// number; each step's results as one sum. If docs/shadow.md changes on purpose, the record becomes
// what this test shows.
#include <gtest/gtest.h>

#include <fstream>
#include <iomanip>
#include <iterator>
#include <sstream>

#include "base/core/seeded_random.h"
#include "base/shadow/block_quantizer.h"
#include "base/shadow/chunk_scores.h"
#include "base/shadow/landmarks.h"
#include "base/shadow/low_rank.h"
#include "tests/base/shadow_samples.h"
#include "tests/support/source_dir.h"

namespace cairn::shadow {
namespace {

enum class Drawn {
  kKeys,    // A mean for each channel, and noise.
  kWide,    // All that is fit.
  kCoarse,  // Few values, zeros of both signs among them; rows come again: equal chunks.
  kTiny,    // Zeros, and the two smallest numbers.
};
constexpr size_t kCoarseRows = 96;  // Until they come again.

struct Case {
  const char* name;
  bool fp16;
  Drawn drawn;
  uint32_t chunk, landmark_bits, channels, group, length;
};
constexpr Case kCases[] = {
    {"bf16 keys", false, Drawn::kKeys, 4, 4, 64, 3, 5000},
    {"fp16 keys", true, Drawn::kKeys, 8, 8, 128, 4, 2600},
    {"bf16 wide", false, Drawn::kWide, 2, 4, 40, 1, 1100},
    {"fp16 wide", true, Drawn::kWide, 4, 8, 80, 2, 1100},
    {"bf16 coarse", false, Drawn::kCoarse, 4, 16, 64, 3, 2600},
    {"fp16 coarse", true, Drawn::kCoarse, 16, 4, 72, 2, 2600},
    {"bf16 tiny", false, Drawn::kTiny, 4, 4, 64, 1, 1100},
    {"fp16 tiny", true, Drawn::kTiny, 4, 8, 64, 1, 1100},
};

// Exact numbers of fp32 in [-2, 2).
float Even(SeededRandom& random) {
  return static_cast<float>(random.Next() >> 40) * 0x1p-22F - 2.0F;
}

std::vector<uint16_t> DrawRows(SeededRandom& random, const Case& one, size_t rows) {
  constexpr float kCoarse[] = {0.0F, -0.0F, 1.0F, -1.0F, 0.5F};
  const uint32_t limit = Narrowed(one.fp16, one.fp16 ? kMagnitudeLimitF16 : kMagnitudeLimitBf16);
  std::vector<float> mean(one.channels);
  for (float& x : mean) x = Even(random);
  std::vector<uint16_t> elements(rows * one.channels);
  for (size_t i = 0; i < elements.size(); ++i) {
    const uint64_t drawn = random.Next();
    switch (one.drawn) {
      case Drawn::kKeys: {
        const float noise = static_cast<float>(drawn >> 40) * 0x1p-22F - 2.0F;
        elements[i] = Narrowed(one.fp16, mean[i % one.channels] + noise);
        break;
      }
      case Drawn::kWide:
        elements[i] = static_cast<uint16_t>((drawn >> 63) << 15 | (drawn & 0x7FFFFFFF) % limit);
        break;
      case Drawn::kCoarse:
        elements[i] = i < kCoarseRows * one.channels
                          ? Narrowed(one.fp16, kCoarse[drawn % std::size(kCoarse)])
                          : elements[i - kCoarseRows * one.channels];
        break;
      case Drawn::kTiny:
        elements[i] = static_cast<uint16_t>((drawn >> 63) << 15 | (drawn & 0x7FFFFFFF) % 3);
        break;
    }
  }
  return elements;
}

// A sum that distinguishes results: each element times a number that follows from its place.
template <typename T>
uint64_t SumOf(const std::vector<T>& elements) {
  SeededRandom places(1);
  uint64_t sum = 0;
  for (const T element : elements) {
    if constexpr (std::is_same_v<T, float>) {
      sum += places.Next() * BitsOfFloat(element);
    } else {
      sum += places.Next() * static_cast<uint64_t>(element);
    }
  }
  return sum;
}

class Record {
 public:
  template <typename T>
  void Add(const std::string& step, const std::vector<T>& elements) {
    text_ << std::hex << std::setw(16) << std::setfill('0') << SumOf(elements) << std::dec << ' '
          << elements.size() << ' ' << step << '\n';
  }
  std::string text() const { return text_.str(); }

 private:
  std::ostringstream text_;
};

std::vector<uint16_t> ReadBack(const BlockLayout& layout, bool fp16,
                               const std::vector<std::byte>& blocks) {
  const size_t count = blocks.size() / layout.block_bytes();
  const size_t elements = size_t{kBlockRows} * layout.channels;
  std::vector<uint16_t> rows(count * elements);
  for (size_t i = 0; i < count; ++i) {
    ReadBlock(layout, fp16,
              std::span(blocks).subspan(i * layout.block_bytes(), layout.block_bytes()), 0,
              std::span(rows).subspan(i * elements, elements));
  }
  return rows;
}

void AddCase(const Case& one, uint64_t seed, Record* record) {
  const std::string name = std::string(one.name) + ": ";
  ShadowSpec spec;
  spec.chunk_tokens = one.chunk;
  spec.landmark_bits = one.landmark_bits;
  const Result<ShadowPlan> planned = PlanShadow(spec, one.length);
  ASSERT_TRUE(planned.ok());
  const ShadowPlan& plan = *planned;
  SeededRandom random(seed);
  const std::vector<uint16_t> rows = DrawRows(random, one, plan.covered);
  const ChunkKeys keys{
      .fp16 = one.fp16, .channels = one.channels, .chunk_tokens = one.chunk, .rows = rows};
  std::vector<uint16_t> landmarks(size_t{plan.chunks} * one.channels);
  MakeLandmarks(keys, landmarks);
  record->Add(name + "landmarks", landmarks);
  const std::vector<float> cosines = ChunkCosines(keys, landmarks);
  record->Add(name + "cosines", cosines);
  const std::vector<uint32_t> outliers = FindOutliers(plan, cosines);
  record->Add(name + "outliers", outliers);
  for (const uint32_t bits : {4u, 8u}) {
    const BlockLayout layout{one.channels, bits};
    const std::vector<std::byte> blocks = testing::StoreBlocks(layout, one.fp16, rows);
    const std::string of = "keys of " + std::to_string(bits) + " bits";
    record->Add(name + of, blocks);
    record->Add(name + of + ", read", ReadBack(layout, one.fp16, blocks));
  }
  const BlockLayout layout{one.channels, one.landmark_bits};
  const size_t whole = size_t{plan.chunks} / kBlockRows * kBlockRows * one.channels;
  const std::vector<std::byte> blocks =
      testing::StoreBlocks(layout, one.fp16, std::span(landmarks).first(whole));
  const std::vector<uint32_t> always = AlwaysAttended(plan, outliers);
  std::vector<float> queries(size_t{one.group} * one.channels);
  for (float& x : queries) x = Even(random);
  const ChunkScores scores = ScoreChunks({.layout = layout,
                                          .fp16 = one.fp16,
                                          .chunks = plan.chunks,
                                          .blocks = blocks,
                                          .tail = std::span(landmarks).subspan(whole),
                                          .always = always},
                                         queries, 0.125F);
  record->Add(name + "scores", scores.score);
  record->Add(name + "log sums", scores.log_sum);
  record->Add(name + "worth", scores.best);
  record->Add(name + "selected", SelectChunks(scores, always, plan.budget_chunks));
}

void AddLowRank(bool fp16, Record* record) {
  constexpr uint32_t kRank = 30, kTokens = 20;
  const Case drawn{"", fp16, Drawn::kKeys, 1, 16, 192, 1, 0};
  SeededRandom random(100);
  const LowRankBasis basis{.fp16 = fp16,
                           .channels = drawn.channels,
                           .rank = kRank,
                           .vectors = DrawRows(random, drawn, kRank)};
  Case narrow = drawn;
  narrow.channels = kRank;
  const std::vector<uint16_t> coefficients = DrawRows(random, narrow, kTokens);
  std::vector<uint16_t> rows(size_t{kTokens} * drawn.channels);
  for (size_t token = 0; token < kTokens; ++token) {
    RebuildRow(basis, std::span(coefficients).subspan(token * kRank, kRank), 0,
               std::span(rows).subspan(token * drawn.channels, drawn.channels));
  }
  record->Add(fp16 ? "fp16 low rank: rebuilt" : "bf16 low rank: rebuilt", rows);
}

void AddFunctions(Record* record) {
  SeededRandom random(200);
  std::vector<float> exponentials, logarithms;
  for (int i = 0; i < 50'000; ++i) {
    exponentials.push_back(Exp(Even(random) * 64.0F));  // Beyond both of its ends.
    logarithms.push_back(Log(FloatOfBits(static_cast<uint32_t>(
        0x00800000 + (random.Next() & 0x7FFFFFFF) % (0x7F800000 - 0x00800000)))));
  }
  record->Add("exp", exponentials);
  record->Add("log", logarithms);
}

// A sum's order seldom shows in its logarithm, so there are many of them.
void AddSums(Record* record) {
  constexpr uint32_t kHeads = 64, kChunks = 600;
  SeededRandom random(300);
  std::vector<float> score(kHeads * kChunks);
  for (float& x : score) x = Even(random);
  record->Add("log sums", SumScores(score, kChunks, kHeads).log_sum);
}

TEST(ShadowRecord, IsWhatTheArithmeticGives) {
  Record record;
  uint64_t seed = 10;
  for (const Case& one : kCases) AddCase(one, seed++, &record);
  AddLowRank(false, &record);
  AddLowRank(true, &record);
  AddFunctions(&record);
  AddSums(&record);
  std::ifstream file(testing::SourcePath("/tests/base/shadow_record.txt"));
  const std::string kept{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(kept, record.text());
}

}  // namespace
}  // namespace cairn::shadow
