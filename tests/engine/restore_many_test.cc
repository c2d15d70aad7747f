// SPDX-License-Identifier: Apache-2.0
//
// Property: one restore of many sources, branches or nodes, puts each range where its shift says,
// whatever tier it comes from; what one of them meets, damage, a mistake of its caller, its
// cancellation or the deadline that all share, leaves the others whole. Method: pieces of several
// branches into one memory, compared row by row with the same positions restored alone.
#include <algorithm>
#include <cstring>
#include <functional>

#include "engine/restore/plan/restore_item.h"
#include "engine/store/store_core.h"
#include "sim/world.h"
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

using engine::RestoreItem;
using engine::RestoreSource;

constexpr uint32_t kLayers = 3, kHeads = 2, kRow = 32;

ModelSpec SmallModel() {
  ModelSpec model;
  model.identity.name = "small";
  model.groups.push_back(LayerGroup::FullAttention(kLayers, kHeads, kRow / 2, Dtype::kBf16));
  model.groups[0].planes[0].rotary = {.state = RotaryState::kNone};  // The same at any position.
  return model;
}

// KV of [first, first + count) in plain memory: [plane][layer][token][head][row].
class Rows {
 public:
  Rows(uint64_t first, uint64_t count)
      : first_(first), count_(count), memory_(2 * kLayers * count * kHeads * kRow) {
    for (size_t plane = 0; plane < 2; ++plane) {
      for (uint32_t layer = 0; layer < kLayers; ++layer) {
        bases_[plane].push_back(memory_.data() + (plane * kLayers + layer) * count * kHeads * kRow);
      }
      planes_[plane].layer_bases = bases_[plane];
      planes_[plane].token_stride = kHeads * kRow;
      planes_[plane].head_stride = kRow;
    }
    view_ = {.group = 0, .position = first, .count = count, .planes = planes_};
    kv_ = {.groups = {&view_, 1}};
  }
  Rows(const Rows&) = delete;
  const KvView* view() const { return &kv_; }

  // All planes, layers and heads of one position.
  std::vector<std::byte> At(uint64_t position) const {
    std::vector<std::byte> rows;
    for (const auto& bases : bases_) {
      for (const std::byte* base : bases) {
        const std::byte* row = base + (position - first_) * kHeads * kRow;
        rows.insert(rows.end(), row, row + kHeads * kRow);
      }
    }
    return rows;
  }
  bool IsUntouched(uint64_t position) const {
    const std::vector<std::byte> rows = At(position);
    return std::all_of(rows.begin(), rows.end(), [](std::byte b) { return b == std::byte{0}; });
  }

 private:
  const uint64_t first_, count_;
  std::vector<std::byte> memory_;
  std::array<std::vector<std::byte*>, 2> bases_;
  std::array<PlaneView, 2> planes_;
  GroupView view_;
  KvView kv_;
};

class RestoreManyTest : public ::testing::Test {
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
  }
  void Write(const std::string& name, uint64_t length, uint64_t seed) {
    ASSERT_OK_ASSIGN(const ModelId id, store_.RegisterModel(model_));
    ASSERT_OK_ASSIGN(Branch branch, store_.CreateBranch(id, {.name = name}));
    for (uint64_t at = 0; at < length; at += 100) {
      KvSet kv(model_, Layout::kContiguous, at, std::min<uint64_t>(100, length - at));
      kv.Write(seed, at, at + std::min<uint64_t>(100, length - at));
      const std::vector<TokenId> tokens = Tokens(std::min<uint64_t>(100, length - at), seed + at);
      ASSERT_OK(branch.AppendSync(MakeDelta(tokens, kv.View(at, tokens.size()))));
    }
  }
  Branch Find(const std::string& name) {
    auto branch = store_.FindBranch(name);
    EXPECT_OK(branch);
    return *branch;
  }
  RestoreSource Source(const std::string& name, uint64_t begin, uint64_t end, uint64_t target) {
    return {.branch = Find(name).id(),
            .begin = begin,
            .end = end,
            .shift = static_cast<int64_t>(target - begin)};
  }
  // Positions [begin, end) of the branch, to where the view has `target`.
  RestoreItem Item(const std::string& name, uint64_t begin, uint64_t end, uint64_t target,
                   const Rows& rows) {
    RestoreItem item;
    item.sources = {Source(name, begin, end, target)};
    item.request.into = rows.view();
    return item;
  }
  Status RestoreMany(std::span<RestoreItem> items, uint64_t timeout_ns = UINT64_MAX) {
    return Find("one").core()->reads().RestoreMany(items, timeout_ns);
  }
  // Rows of [begin, end) at `target` are those that the branch has.
  void ExpectRows(const std::string& name, uint64_t begin, uint64_t end, uint64_t target,
                  const Rows& rows) {
    Rows alone(0, end);
    RestoreRequest request;
    request.end = end;
    request.into = alone.view();
    ASSERT_OK(Find(name).Restore(request));
    for (uint64_t i = begin; i < end; ++i) {
      ASSERT_EQ(alone.At(i), rows.At(target + i - begin)) << name << ": position " << i;
    }
  }
  std::vector<std::string> Tables() {
    std::vector<std::string> found;
    for (const std::string& path : sim_.disk->Files()) {
      if (path.ends_with(".snapshot")) found.push_back(path);
    }
    return found;
  }

  const ModelSpec model_ = SmallModel();
  io::SimWorld sim_ = io::MakeSimWorld(1);
  Options options_;
  Store store_;
};

TEST_F(RestoreManyTest, PiecesLandWhereTheirShiftSays) {
  Write("one", 300, 1);
  Write("two", 5000, 2);  // Its frames are read one by one.
  Write("three", 40, 3);
  const auto check = [&](const char* from) {
    SCOPED_TRACE(from);
    Rows rows(1000, 4000);
    std::vector<TokenId> tokens(100);
    std::vector<RestoreItem> items = {
        Item("one", 50, 150, 1000, rows), Item("two", 700, 4100, 1100, rows),
        Item("three", 0, 40, 4500, rows), Item("one", 0, 300, 4600, rows)};
    items[0].request.tokens = tokens;
    ASSERT_OK(RestoreMany(items));
    for (const RestoreItem& item : items) {
      ASSERT_OK(item.status);
      const RestoreSource& source = item.sources[0];
      EXPECT_EQ((source.end - source.begin) * model_.token_bytes(), item.result.bytes);
      const uint64_t end = source.end + static_cast<uint64_t>(source.shift);
      EXPECT_EQ(end, item.result.end);
      EXPECT_EQ(std::vector<uint64_t>{end}, item.result.kv_ends);
    }
    ExpectRows("one", 50, 150, 1000, rows);
    ExpectRows("two", 700, 4100, 1100, rows);
    ExpectRows("three", 0, 40, 4500, rows);
    ExpectRows("one", 0, 300, 4600, rows);
    for (uint64_t i = 4540; i < 4600; ++i) EXPECT_TRUE(rows.IsUntouched(i)) << i;
    ASSERT_OK_ASSIGN(const std::vector<TokenId> ids, Find("one").ReadTokens(50, 150));
    EXPECT_EQ(ids, tokens) << "ids have no positions of their own";
  };
  check("the log");
  ASSERT_OK(store_.Compact());
  Reopen();
  check("tables");
  check("memory");
  Write("one more", 200, 4);
  check("tables and memory, beside a hot tail");
}

// The path that ends with a node is read: a branch may have gone on, or be gone.
TEST_F(RestoreManyTest, ANodeIsASource) {
  Write("one", 200, 1);
  ASSERT_OK_ASSIGN(const Branch fork, Find("one").ForkAt(120, {.name = "fork"}));
  ASSERT_OK_ASSIGN(const std::vector<PathStep> path, Find("one").Path());
  for (int from = 0; from < 2; ++from) {
    Rows rows(0, 400);
    RestoreItem item = Item("one", 0, 200, 30, rows);
    item.sources[0].branch = {};
    item.sources[0].node = path.back().node;
    ASSERT_OK(RestoreMany({&item, 1}));
    ASSERT_OK(item.status);
    ExpectRows("one", 0, 200, 30, rows);
    ASSERT_OK(store_.Compact());
    Reopen();
  }
  Rows rows(0, 400);
  RestoreItem item = Item("one", 0, 200, 30, rows);
  item.sources[0].node = NodeId{4711};
  ASSERT_OK(RestoreMany({&item, 1}));
  EXPECT_FAILS(item.status, StatusCode::kNotFound, "there is no node 4711");
}

// Positions outside of the view are not restored, on either side.
TEST_F(RestoreManyTest, AShiftMayLeadOutOfTheRoom) {
  Write("one", 300, 1);
  for (int from = 0; from < 2; ++from) {
    Rows rows(100, 50);
    std::vector<RestoreItem> items = {Item("one", 0, 300, 0, rows), Item("one", 0, 300, 0, rows),
                                      Item("one", 0, 300, 0, rows)};
    items[0].sources[0].shift = -100;  // [200, 250) lands in [100, 150).
    ASSERT_OK(RestoreMany(std::span(items).first(1)));
    ASSERT_OK(items[0].status);
    ExpectRows("one", 200, 250, 100, rows);
    EXPECT_EQ(std::vector<uint64_t>{150}, items[0].result.kv_ends);
    items[1].sources[0].shift = 120;  // [0, 30) lands in [120, 150).
    ASSERT_OK(RestoreMany(std::span(items).subspan(1, 1)));
    ASSERT_OK(items[1].status);
    ExpectRows("one", 0, 30, 120, rows);
    items[2].sources[0].shift = INT64_MIN;  // Nothing of it has room.
    ASSERT_OK(RestoreMany(std::span(items).subspan(2, 1)));
    ASSERT_OK(items[2].status);
    EXPECT_EQ(0u, items[2].result.bytes);
    ASSERT_OK(store_.Compact());
  }
}

TEST_F(RestoreManyTest, EachHasItsOwnStatus) {
  Write("one", 300, 1);
  Write("two", 300, 2);
  ASSERT_OK(store_.Compact());
  Reopen();
  // The last page of the second branch, wherever its table keeps it: what restores alone say.
  const std::vector<std::string> tables = Tables();
  ASSERT_FALSE(tables.empty());
  ASSERT_OK_ASSIGN(const std::vector<std::byte> bytes, sim_.disk->ReadRaw(tables.back()));
  bool struck = false;
  for (uint64_t at = 0; at < bytes.size(); at += 512) {
    ASSERT_OK(sim_.disk->FlipBit(tables.back(), at, 3));
    Reopen();
    struck = HasKv(Find("one"), model_, 0, 300, 1) && !HasKv(Find("two"), model_, 0, 300, 2);
    if (struck) break;
    ASSERT_OK(sim_.disk->FlipBit(tables.back(), at, 3));
  }
  ASSERT_TRUE(struck);
  Reopen();  // Nothing of it is in memory.
  Rows rows(0, 2000);
  std::atomic<uint32_t> words[2][kLayers]{};
  LayerProgress progress[2] = {{words[0]}, {words[1]}};
  engine::LayerWords of_one(*options_.world->scheduler, &progress[0]);
  engine::LayerWords of_two(*options_.world->scheduler, &progress[1]);
  std::vector<RestoreItem> items = {Item("one", 0, 300, 0, rows), Item("two", 0, 300, 300, rows),
                                    Item("one", 10, 20, 1000, rows),
                                    Item("one", 400, 500, 1100, rows)};
  items[0].layers = &of_one;
  items[1].layers = &of_two;
  const StoreMetrics before = store_.Metrics();
  ASSERT_OK(RestoreMany(items));
  EXPECT_OK(items[0].status);
  EXPECT_FAILS(items[1].status, StatusCode::kCorruption, "restorable up to position");
  EXPECT_OK(items[2].status);
  EXPECT_FAILS(items[3].status, StatusCode::kInvalidArgument, "from a branch of 300 tokens");
  for (const auto& word : words[0]) EXPECT_EQ(word.load(), kLayerComplete);
  EXPECT_TRUE(std::any_of(std::begin(words[1]), std::end(words[1]),
                          [](const auto& word) { return word.load() == kLayerPending; }));
  const StoreMetrics after = store_.Metrics();
  EXPECT_EQ(after.restores, before.restores + 2);
  EXPECT_EQ(after.restores_failed_corruption, before.restores_failed_corruption + 1);
  ExpectRows("one", 0, 300, 0, rows);
  ExpectRows("one", 10, 20, 1000, rows);
  // As sources of one item they share their fate; the damage is named where it would have come.
  RestoreItem both;
  both.sources = {Source("one", 0, 300, 500), Source("two", 0, 300, 800)};
  both.request.into = rows.view();
  ASSERT_OK(RestoreMany({&both, 1}));
  EXPECT_FAILS(both.status, StatusCode::kCorruption, "restorable up to position 800");
}

// One ends in the middle of its reads, or before them; the other one comes whole.
TEST_F(RestoreManyTest, ACancelEndsItsItemAlone) {
  Write("one", 3000, 1);
  Write("two", 3000, 2);
  ASSERT_OK(store_.Compact());
  int cancelled = 0;
  for (uint64_t after_ns = 0; after_ns < 2'000'000; after_ns += 50'000) {
    Reopen();
    Rows rows(0, 6000);
    std::vector<RestoreItem> items = {Item("one", 0, 3000, 0, rows),
                                      Item("two", 0, 3000, 3000, rows)};
    const auto ticket = std::make_shared<TicketState>(*options_.world, nullptr, 0);
    ticket->is_job = true;
    ASSERT_TRUE(ticket->BeginJob());
    items[1].ticket = ticket.get();
    const auto cancels = sim_.scheduler->StartThread("cancels", [&] {
      sim_.scheduler->Sleep(after_ns);
      static_cast<void>(ticket->Cancel());
    });
    ASSERT_OK(RestoreMany(items));
    ASSERT_OK(items[0].status);
    if (!items[1].status.ok()) {
      ASSERT_EQ(items[1].status.code(), StatusCode::kCancelled);
      ++cancelled;
    }
    ticket->Finish(items[1].status);
    ExpectRows("one", 0, 3000, 0, rows);
    if (items[1].status.ok()) ExpectRows("two", 0, 3000, 3000, rows);
  }
  EXPECT_GT(cancelled, 0);
  EXPECT_LT(cancelled, 40);
}

TEST_F(RestoreManyTest, OneDeadlineForAll) {
  Write("one", 2000, 1);
  ASSERT_OK(store_.Compact());
  Reopen();
  Write("two", 100, 2);  // In the hot tail.
  sim_.disk->AddFault({.when =
                           [](const io::SimOperation& op) {
                             return op.op == io::SimOp::kRead && op.path.ends_with(".snapshot");
                           },
                       .delay_ns = 1'000'000'000});
  Rows rows(0, 3000);
  std::vector<RestoreItem> items = {Item("one", 0, 2000, 0, rows), Item("two", 0, 100, 2000, rows)};
  ASSERT_OK(RestoreMany(items, 10'000'000));
  EXPECT_FAILS(items[0].status, StatusCode::kDeadlineExceeded, "the restore took too long");
  EXPECT_OK(items[1].status) << "it had all that it needs";
  sim_.disk->ClearFaults();
  ExpectRows("two", 0, 100, 2000, rows);
}

}  // namespace
}  // namespace cairn::testing
