// SPDX-License-Identifier: Apache-2.0
//
// Property: the metrics of a store say what happened to it: contents and chains, restores by tier,
// failed ones by cause, queues, batches. Method: a store on the simulated machine, where reads can
// be made slow, wrong or impossible; each cause is brought about once.
#include <cerrno>
#include <cstdlib>
#include <set>

#include "tests/engine/engine_test.h"
#include "wal/format.h"

namespace cairn::testing {
namespace {

// Refuses while `refuse` is set.
struct Memory {
  std::atomic<bool> refuse{false};
  Allocator allocator() {
    return {.allocate = [](void* context, size_t bytes, size_t alignment) -> void* {
              return static_cast<Memory*>(context)->refuse
                         ? nullptr
                         : std::aligned_alloc(alignment,
                                              (bytes + alignment - 1) / alignment * alignment);
            },
            .deallocate = [](void*, void* memory, size_t, size_t) { std::free(memory); },
            .context = this};
  }
};

class MetricsTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kEach = 4;
  static constexpr uint64_t kRecords = 10;
  static constexpr uint64_t kLength = kEach * kRecords;

  void SetUp() override {
    sim_ = std::make_unique<io::SimWorld>(io::MakeSimWorld(1));
    options_ = TinyOptions();
    options_.world = std::make_shared<io::World>(sim_->world());
    options_.allocator = memory_.allocator();
    Open();
    ASSERT_OK_ASSIGN(const ModelId id, store_.RegisterModel(model_));
    ASSERT_OK_ASSIGN(chat_, store_.CreateBranch(id, {.name = "chat"}));
    for (uint64_t i = 0; i < kRecords; ++i) {
      ASSERT_OK(AppendSome(chat_, model_, i * kEach, kEach, kSeed, Durability::kPower));
    }
  }
  void TearDown() override {
    store_ = {};  // Before its memory.
    chat_ = {};
  }

  void Open() {
    auto store = Store::Open("/store", options_);
    ASSERT_OK(store);
    store_ = std::move(*store);
  }
  // From here on restored content lies on the disk alone.
  void Reopen() {
    ASSERT_OK(store_.Close());
    Open();
    ASSERT_OK_ASSIGN(chat_, store_.FindBranch("chat"));
  }

  Status Restore(uint64_t timeout_ns = 0) {
    KvSet kv(model_, Layout::kContiguous, 0, kLength);
    RestoreRequest request;
    request.end = kLength;
    request.into = kv.View(0, kLength);
    if (timeout_ns != 0) request.timeout_ns = timeout_ns;
    return chat_.Restore(request).status();
  }

  // The first file of the log: that of the appends.
  std::string Segment() {
    std::set<std::string> segments;
    for (const std::string& path : sim_->disk->Files()) {
      if (path.find("/log/0") != std::string::npos) segments.insert(path);
    }
    return segments.empty() ? "" : *segments.begin();
  }
  void FailReads() {
    sim_->disk->AddFault(
        {.when = [](const io::SimOperation& operation) { return operation.op == io::SimOp::kRead; },
         .error = EIO,
         .persistent = true});
  }

  Memory memory_;
  std::unique_ptr<io::SimWorld> sim_;
  Options options_;
  const ModelSpec model_ = TinyModel();
  Store store_;
  Branch chat_;
};

TEST_F(MetricsTest, ContentsAndChains) {
  StoreMetrics metrics = store_.Metrics();
  EXPECT_EQ(kLength, metrics.tokens);
  EXPECT_EQ(kLength * (4 + 64), metrics.raw_bytes);
  EXPECT_EQ(1u, metrics.chain_lanes);
  EXPECT_EQ(kRecords, metrics.chain_deltas);
  EXPECT_DOUBLE_EQ(10.0, metrics.mean_chain());
  EXPECT_EQ(metrics.log_segments * options_.segment_bytes, metrics.stored_bytes);
  EXPECT_EQ(0u, metrics.log_records_waiting);
  EXPECT_EQ(0u, metrics.log_groups_in_flight);
  EXPECT_EQ(0u, metrics.poisoned);
  EXPECT_TRUE(store_.Health().ok);
  EXPECT_NE(std::string::npos, store_.PrometheusText("a").find("cairn_tokens{store=\"a\"} 40\n"));

  // A fork shares; what both share lies on one lane.
  ASSERT_OK_ASSIGN(Branch twin, chat_.ForkAt(kLength, {}));
  ASSERT_OK(AppendSome(twin, model_, kLength, 1));
  metrics = store_.Metrics();
  EXPECT_EQ(2u, metrics.chain_lanes);
  EXPECT_EQ(kRecords + 1, metrics.chain_deltas);
  ASSERT_OK(twin.Drop());
  ASSERT_OK(chat_.Rewind(kEach));
  // A reader knows the contents as well.
  ASSERT_OK(store_.Flush());
  Options reading = options_;
  reading.read_only = true;
  reading.create_if_missing = false;
  ASSERT_OK_ASSIGN(const Store reader, Store::Open("/store", reading));
  for (const StoreMetrics& seen : {store_.Metrics(), reader.Metrics()}) {
    EXPECT_EQ(kEach, seen.tokens);
    EXPECT_EQ(1u, seen.chain_lanes);
    EXPECT_EQ(1u, seen.chain_deltas);
    EXPECT_GT(seen.stored_bytes, 0u);
  }
  EXPECT_EQ(0u, reader.Metrics().rewinds);
}

TEST_F(MetricsTest, RestoresByTier) {
  ASSERT_OK(Restore());
  StoreMetrics metrics = store_.Metrics();
  EXPECT_EQ(kRecords, metrics.restored_hot_records);
  EXPECT_EQ(kLength * 64, metrics.restored_hot_bytes);
  EXPECT_EQ(0u, metrics.restored_log_records);
  Reopen();
  ASSERT_OK(Restore());
  metrics = store_.Metrics();
  EXPECT_EQ(0u, metrics.restored_hot_records);
  EXPECT_EQ(kRecords, metrics.restored_log_records);
  EXPECT_EQ(kLength * 64, metrics.restored_log_bytes);
  EXPECT_EQ(1u, metrics.restores);
  EXPECT_EQ(1u, metrics.restore.count);
  EXPECT_GT(metrics.restore.sum_ns, 0u);
  EXPECT_EQ(0u, metrics.restores_failed());
}

TEST_F(MetricsTest, FailedRestoresByCause) {
  Reopen();
  EXPECT_FAILS(Restore(1), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(1u, store_.Metrics().restores_failed_deadline);

  FailReads();
  EXPECT_FAILS(Restore(), StatusCode::kIoError);
  EXPECT_EQ(1u, store_.Metrics().restores_failed_io);
  sim_->disk->ClearFaults();

  Reopen();  // Else buffers are at hand.
  memory_.refuse = true;
  EXPECT_FAILS(Restore(), StatusCode::kOutOfMemory);
  memory_.refuse = false;
  EXPECT_EQ(1u, store_.Metrics().restores_failed_memory);
  EXPECT_EQ(1u, store_.Metrics().restores_failed());

  KvSet kv(model_, Layout::kContiguous, 0, kLength);
  RestoreRequest request;
  request.end = kLength;
  request.into = kv.View(0, kLength);
  ASSERT_OK_ASSIGN(Ticket ticket, chat_.RestoreAsync(request));
  sim_->scheduler->Sleep(5'000);  // A read takes at least twice that.
  EXPECT_FAILS(ticket.Cancel(), StatusCode::kCancelled);
  EXPECT_EQ(1u, store_.Metrics().restores_failed_cancelled);

  // Arguments that make no sense are the caller's failure.
  request.begin = kLength + 1;
  request.end = kLength + 2;
  EXPECT_FAILS(chat_.Restore(request), StatusCode::kInvalidArgument);
  EXPECT_EQ(2u, store_.Metrics().restores_failed());
  EXPECT_EQ(0u, store_.Metrics().restores);
}

TEST_F(MetricsTest, FailedRestoresOfDamagedAndLostFiles) {
  ASSERT_OK(store_.Close());
  const std::string segment = Segment();
  ASSERT_OK_ASSIGN(const std::vector<std::byte> bytes, sim_->disk->ReadRaw(segment));
  for (uint64_t at = 0; at + 64 <= bytes.size(); at += 64) {
    const auto frame = wal::LoadAs<wal::RecordFrame>(bytes.data() + at);
    if (frame.magic != wal::kRecordMagic || frame.strip_count != 2) continue;
    ASSERT_OK(sim_->disk->FlipBit(segment, at + frame.payload_offset + 64, 3));  // In its KV.
    break;
  }
  Open();
  ASSERT_OK_ASSIGN(chat_, store_.FindBranch("chat"));
  EXPECT_FAILS(Restore(), StatusCode::kCorruption);
  EXPECT_EQ(1u, store_.Metrics().restores_failed_corruption);

  Reopen();
  ASSERT_OK(sim_->disk->Remove("/" + segment));
  EXPECT_FAILS(Restore(), StatusCode::kCorruption, "the file is gone");
  EXPECT_EQ(1u, store_.Metrics().restores_failed_corruption);
  EXPECT_EQ(1u, store_.Metrics().restores_failed());
}

TEST_F(MetricsTest, BatchesCountLikeSingleChanges) {
  const StoreMetrics before = store_.Metrics();
  const std::vector<TokenId> tokens = Tokens(3);
  WriteBatch batch;
  const int fork = batch.Fork(chat_, kLength, {});
  KvSet kv(model_, Layout::kContiguous, kLength, 3);
  batch.Append(fork, MakeDelta(tokens, kv.View(kLength, 3)));
  batch.Rewind(fork, kLength);
  batch.Drop(fork);
  ASSERT_OK(store_.Write(batch));
  const StoreMetrics after = store_.Metrics();
  EXPECT_EQ(before.appends + 1, after.appends);
  EXPECT_EQ(before.tokens_appended + 3, after.tokens_appended);
  EXPECT_EQ(before.kv_bytes_appended + 3 * 64, after.kv_bytes_appended);
  EXPECT_EQ(before.forks + 1, after.forks);
  EXPECT_EQ(before.rewinds + 1, after.rewinds);
  EXPECT_EQ(before.drops + 1, after.drops);
}

TEST_F(MetricsTest, QueuesWhileTheDiskIsBusy) {
  const std::vector<TokenId> tokens = Tokens(1);
  AppendOptions options;
  options.durability = Durability::kPower;
  std::vector<Ticket> tickets;
  for (int i = 0; i < 5; ++i) {
    ASSERT_OK_ASSIGN(Ticket ticket, chat_.Append(MakeDelta(tokens), options));
    tickets.push_back(ticket);
  }
  const StoreMetrics busy = store_.Metrics();
  EXPECT_EQ(5u, busy.tickets_waiting);
  EXPECT_EQ(5u, busy.log_records_waiting);
  sim_->scheduler->Sleep(4'000);  // A write takes longer.
  EXPECT_EQ(1u, store_.Metrics().log_groups_in_flight);
  ASSERT_OK(tickets.back().Wait());
  const StoreMetrics idle = store_.Metrics();
  EXPECT_EQ(0u, idle.tickets_waiting);
  EXPECT_EQ(0u, idle.log_records_waiting);
  EXPECT_EQ(0u, idle.log_groups_in_flight);
  EXPECT_EQ(busy.save.count + 5, idle.save.count);
}

TEST_F(MetricsTest, PoisonIsAnAlarm) {
  sim_->disk->AddFault(
      {.when = [](const io::SimOperation& operation) { return operation.changes_world(); },
       .error = EIO,
       .persistent = true});
  EXPECT_FALSE(AppendSome(chat_, model_, kLength, 1, kSeed, Durability::kPower).ok());
  EXPECT_EQ(1u, store_.Metrics().poisoned);
  const Health health = store_.Health();
  ASSERT_EQ(1u, health.alarms.size());
  EXPECT_EQ("poisoned", health.alarms[0].name);
  // Replayed from the log, the tree counts as before.
  EXPECT_EQ(kRecords, store_.Metrics().chain_deltas);
}

}  // namespace
}  // namespace cairn::testing
