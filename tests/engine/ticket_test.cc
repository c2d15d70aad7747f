// SPDX-License-Identifier: Apache-2.0
//
// Property: an asynchronous call returns at once, ends exactly once, says how, and leaves the
// caller's memory alone from then on.
// Method: tickets at every durability, queues with and without poll; borrowed sources that become
// unreadable the moment the ticket is over; a disk that is slow by decree.
#include <poll.h>
#include <sys/mman.h>

#include <cstring>
#include <thread>

#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

class TicketTest : public WorldTest {
 protected:
  void SetUp() override {
    WorldTest::SetUp();
    if (IsSkipped()) return;
    model_ = TinyModel();
    chat_ = Create(Register(model_), "chat");
  }
  ModelSpec model_;
  Branch chat_;
};

INSTANTIATE_TEST_SUITE_P(Worlds, TicketTest, ::testing::ValuesIn(TestWorld::Names()), NameOf);

TEST_P(TicketTest, EveryDurabilityInOrder) {
  const std::vector<TokenId> tokens = Tokens(3);
  std::vector<Ticket> tickets;
  for (uint64_t i = 0; i < 60; ++i) {
    AppendOptions options;
    options.durability = static_cast<Durability>(i % 3);
    options.expected_length = 3 * i;
    ASSERT_OK_ASSIGN(Ticket ticket,
                     WhileBusy(store_, [&] { return chat_.Append(MakeDelta(tokens), options); }));
    EXPECT_EQ(3 * (i + 1), ticket.length());
    EXPECT_TRUE(ticket.released());
    if (options.durability == Durability::kMemory) {
      EXPECT_TRUE(ticket.done());
    }
    tickets.push_back(ticket);
  }
  EXPECT_EQ(180u, *chat_.length()) << "applied when Append returns";
  ASSERT_OK(tickets.back().Wait());
  for (const Ticket& ticket : tickets) {
    EXPECT_TRUE(ticket.done()) << "acknowledged in order";
    EXPECT_OK(ticket.status());
  }
  EXPECT_EQ(180u, *chat_.durable_length());
}

TEST(EmptyTicket, IsOfNoCall) {
  Ticket ticket;
  EXPECT_FALSE(ticket.done() || ticket.released() || ticket.kv_shed());
  EXPECT_EQ(ticket.length(), 0u);
  EXPECT_EQ(ticket.restored(), nullptr);
  EXPECT_FAILS(ticket.status(), StatusCode::kInvalidState, "an empty ticket");
  EXPECT_FAILS(ticket.Wait(), StatusCode::kInvalidState, "an empty ticket");
  EXPECT_FAILS(ticket.Cancel(), StatusCode::kInvalidState, "an empty ticket");
  CompletionQueue queue;
  EXPECT_EQ(queue.event_fd(), -1);
  EXPECT_TRUE(queue.Drain().empty());
  EXPECT_FALSE(queue.Wait(1));
}

TEST_P(TicketTest, CompletionsComeThroughTheQueue) {
  ASSERT_OK_ASSIGN(CompletionQueue queue, store_.NewCompletionQueue());
  EXPECT_TRUE(queue.Drain().empty());
  EXPECT_FALSE(queue.Wait(1'000'000)) << "nothing yet";
  const std::vector<TokenId> tokens = Tokens(1);
  constexpr uint64_t kCount = 100;
  for (uint64_t i = 0; i < kCount; ++i) {
    AppendOptions options;
    options.durability = i % 2 == 0 ? Durability::kProcess : Durability::kPower;
    options.queue = &queue;
    options.user_data = i;
    ASSERT_OK(WhileBusy(store_, [&] { return chat_.Append(MakeDelta(tokens), options); }));
  }
  std::vector<bool> seen(kCount);
  for (uint64_t count = 0; count < kCount;) {
    if (queue.event_fd() >= 0) {
      pollfd ready{.fd = queue.event_fd(), .events = POLLIN, .revents = 0};
      ASSERT_EQ(1, poll(&ready, 1, 10'000));
    } else {
      ASSERT_TRUE(queue.Wait());
    }
    for (const Completion& completion : queue.Drain(7)) {
      EXPECT_OK(completion.status);
      EXPECT_TRUE(completion.ticket.done());
      EXPECT_FALSE(seen[completion.user_data]) << "once";
      seen[completion.user_data] = true;
      ++count;
    }
  }
  EXPECT_TRUE(queue.Drain().empty());
  if (queue.event_fd() >= 0) {
    pollfd ready{.fd = queue.event_fd(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(0, poll(&ready, 1, 0)) << "not readable when empty";
  }
  EXPECT_EQ(kCount, *chat_.length());
}

TEST_P(TicketTest, RestoresAreAsynchronousToo) {
  ASSERT_OK(AppendSome(chat_, model_, 0, 30));
  Reopen();
  chat_ = Find("chat");
  ASSERT_OK_ASSIGN(CompletionQueue queue, store_.NewCompletionQueue());
  KvSet got(model_, Layout::kHnd, 0, 30);
  KvSet want(model_, Layout::kHnd, 0, 30);
  want.Write(kSeed, 0, 30);
  std::vector<TokenId> ids(30);
  std::vector<std::atomic<uint32_t>> flags(2);
  LayerProgress progress{.layers = flags};
  RestoreRequest request;
  request.tokens = ids;
  request.into = got.View(0, 30);
  request.queue = &queue;
  request.user_data = 9;
  ASSERT_OK_ASSIGN(Ticket ticket, chat_.RestoreAsync(request, &progress));
  ASSERT_OK(ticket.Wait());
  ASSERT_TRUE(queue.Wait());
  EXPECT_EQ(9u, queue.Drain()[0].user_data);
  EXPECT_TRUE(got == want);
  ASSERT_NE(nullptr, ticket.restored());
  EXPECT_EQ(30u, ticket.restored()->end);
  EXPECT_EQ(std::vector<uint64_t>{30}, ticket.restored()->kv_ends);
  EXPECT_EQ(30 * model_.token_bytes(), ticket.restored()->bytes);
  EXPECT_EQ(Tokens(30, kSeed), ids);
  EXPECT_EQ(kLayerComplete, flags[0].load());
  EXPECT_EQ(kLayerComplete, flags[1].load());
  request.end = 31;
  ASSERT_OK_ASSIGN(Ticket failed, chat_.RestoreAsync(request));
  EXPECT_FAILS(failed.Wait(), StatusCode::kInvalidArgument, "30 tokens");
  EXPECT_EQ(nullptr, failed.restored());
  Ticket cancelled = *chat_.RestoreAsync(request);
  EXPECT_FALSE(cancelled.Cancel().ok());
  EXPECT_TRUE(cancelled.done());
}

// Memory that can be taken away.
class Pages {
 public:
  explicit Pages(size_t bytes) : bytes_(bytes) {
    data_ = static_cast<std::byte*>(
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  }
  ~Pages() { munmap(data_, bytes_); }
  void TakeAway() { mprotect(data_, bytes_, PROT_NONE); }
  std::byte* data() const { return data_; }

 private:
  std::byte* data_;
  size_t bytes_;
};

// A view of `count` contiguous positions of WideModel on pages.
struct PagedSource {
  explicit PagedSource(uint64_t count) : pages(count * 8192) {
    for (size_t plane = 0; plane < 2; ++plane) {
      for (size_t layer = 0; layer < 8; ++layer) {
        bases[plane].push_back(pages.data() + (plane * 8 + layer) * 512 * count);
      }
      planes.push_back({.layer_bases = bases[plane], .token_stride = 512, .head_stride = 128});
    }
    group.count = count;
    group.planes = planes;
    kv.groups = std::span(&group, 1);
  }
  Pages pages;
  std::vector<std::byte*> bases[2];
  std::vector<PlaneView> planes;
  GroupView group;
  KvView kv;
};

TEST_P(TicketTest, ABorrowedSourceIsReadUntilReleasedAndNeverAgain) {
  const ModelSpec wide = WideModel();
  Branch branch = Create(Register(wide), "wide");
  constexpr uint64_t kCount = 512;
  const std::vector<TokenId> tokens = Tokens(kCount);
  PagedSource source(kCount);
  std::memset(source.pages.data(), 0x3C, kCount * 8192);
  ASSERT_OK_ASSIGN(Ticket ticket, branch.Append(MakeDelta(tokens, &source.kv)));
  while (!ticket.released()) world_->world().scheduler->Sleep(10'000);
  source.pages.TakeAway();
  ASSERT_OK(ticket.Wait());
  PagedSource target(kCount);
  RestoreRequest request;
  request.into = &target.kv;
  ASSERT_OK(branch.Restore(request));
  for (size_t i = 0; i < kCount * 8192; ++i) ASSERT_EQ(std::byte{0x3C}, target.pages.data()[i]);
}

TEST_P(TicketTest, CancelIsABarrierForTheSource) {
  const ModelSpec wide = WideModel();
  Branch branch = Create(Register(wide), "wide");
  constexpr uint64_t kCount = 512;
  const std::vector<TokenId> tokens = Tokens(kCount);
  for (int round = 0; round < 30; ++round) {
    const uint64_t length = *branch.length();
    PagedSource source(kCount);
    source.group.position = length;
    AppendOptions options;
    options.durability = Durability::kPower;
    options.expected_length = length;
    ASSERT_OK_ASSIGN(Ticket ticket, branch.Append(MakeDelta(tokens, &source.kv), options));
    if (round % 3 != 0) world_->world().scheduler->Sleep(static_cast<uint64_t>(round) * 100'000);
    const Status status = ticket.Cancel();
    source.pages.TakeAway();
    EXPECT_TRUE(ticket.done());
    EXPECT_TRUE(ticket.released());
    // The branch is free again, and as the status says.
    const uint64_t after = *branch.length();
    if (status.code() == StatusCode::kCancelled) {
      EXPECT_EQ(length, after);
    } else if (status.ok()) {
      EXPECT_EQ(length + kCount, after);
    } else {
      EXPECT_EQ(StatusCode::kUnknownOutcome, status.code()) << status.ToString();
      EXPECT_TRUE(after == length || after == length + kCount);
    }
    ASSERT_OK(branch.Rewind(0));
  }
  ASSERT_OK(store_.Flush());
  Reopen();
  EXPECT_EQ(0u, *Find("wide").length());
}

TEST_P(TicketTest, WhileASourceIsGatheredTheBranchIsBusy) {
  const ModelSpec wide = WideModel();
  Branch branch = Create(Register(wide), "wide");
  constexpr uint64_t kCount = 2048;  // 16 MiB: more than group memory holds.
  const std::vector<TokenId> tokens = Tokens(kCount);
  PagedSource source(kCount);
  ASSERT_OK_ASSIGN(Ticket ticket, branch.Append(MakeDelta(tokens, &source.kv)));
  bool was_busy = false;
  while (!ticket.released()) {
    auto other = branch.Append(MakeDelta(std::span(tokens).first(1)));
    if (!other.ok()) {
      was_busy |= Fails(other.status(), StatusCode::kBusy, "being gathered");
      const Status rewind = branch.Rewind(0);
      if (!rewind.ok()) {
        EXPECT_FAILS(rewind, StatusCode::kBusy);
      } else {
        break;
      }
      WriteBatch batch;
      batch.Append(branch, MakeDelta(std::span(tokens).first(1)));
      if (auto written = store_.Write(batch); !written.ok()) {
        EXPECT_FAILS(written, StatusCode::kBusy);
      }
      // Other branches go on, as far as the log has room.
      const Status beside = chat_.Append(MakeDelta(std::span(tokens).first(1))).status();
      EXPECT_EQ(std::string_view::npos, beside.message().find("being gathered"));
    }
    world_->world().scheduler->Sleep(1'000);
  }
  ASSERT_OK(ticket.Wait());
  EXPECT_TRUE(was_busy);
  // A blocking append waits for its turn instead.
  ASSERT_OK(branch.Rewind(0));
  ASSERT_OK_ASSIGN(Ticket again, branch.Append(MakeDelta(tokens, &source.kv)));
  ASSERT_OK_ASSIGN(const uint64_t length, branch.AppendSync(MakeDelta(std::span(tokens).first(1))));
  EXPECT_EQ(kCount + 1, length);
  ASSERT_OK(again.Wait());
}

// A disk on which nothing gets durable for a while.
class SlowDiskTest : public ::testing::Test {
 protected:
  void SetUp() override {
    world_ = TestWorld::Make("simulated");
    sim_ = std::make_unique<io::SimWorld>(io::MakeSimWorld(
        1, {.write = {40'000'000, 40'000'000}, .durable = {40'000'000, 40'000'000}}));
    Options options = TinyOptions();
    options.world = std::make_shared<io::World>(sim_->world());
    auto store = Store::Open("/store", options);
    ASSERT_OK(store);
    store_ = std::move(*store);
    auto model = store_.RegisterModel(TokenModel());
    ASSERT_OK(model);
    auto chat = store_.CreateBranch(*model);
    ASSERT_OK(chat);
    chat_ = *chat;
  }
  std::unique_ptr<TestWorld> world_;
  std::unique_ptr<io::SimWorld> sim_;
  Store store_;
  Branch chat_;
};

TEST_F(SlowDiskTest, AWaitThatTimesOutLeavesTheTicketAsItIs) {
  const std::vector<TokenId> tokens = Tokens(1);
  AppendOptions options;
  options.durability = Durability::kPower;
  ASSERT_OK_ASSIGN(Ticket ticket, chat_.Append(MakeDelta(tokens), options));
  EXPECT_FALSE(ticket.done());
  EXPECT_FAILS(ticket.status(), StatusCode::kBusy);
  EXPECT_FAILS(ticket.Wait(1'000), StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(ticket.done());
  EXPECT_OK(ticket.Wait());
}

TEST_F(SlowDiskTest, ATicketEndsAtItsDeadline) {
  const std::vector<TokenId> tokens = Tokens(1);
  ASSERT_OK_ASSIGN(CompletionQueue queue, store_.NewCompletionQueue());
  AppendOptions options;
  options.durability = Durability::kPower;
  options.timeout_ns = 1'000'000;
  options.queue = &queue;
  const uint64_t before = sim_->scheduler->MonotonicNs();
  ASSERT_OK_ASSIGN(Ticket ticket, chat_.Append(MakeDelta(tokens), options));
  ASSERT_TRUE(queue.Wait());
  EXPECT_LT(sim_->scheduler->MonotonicNs() - before, 30'000'000u);
  EXPECT_FAILS(ticket.status(), StatusCode::kUnknownOutcome, "deadline");
  EXPECT_FAILS(chat_.AppendSync(MakeDelta(tokens), options), StatusCode::kUnknownOutcome,
               "expected_length");
  ASSERT_OK(store_.Flush());
  EXPECT_EQ(2u, *chat_.durable_length()) << "both did happen";
}

TEST_F(SlowDiskTest, ABorrowedAppendEndsAtItsDeadline) {
  auto wide = store_.RegisterModel(WideModel());
  ASSERT_OK(wide);
  ASSERT_OK_ASSIGN(Branch branch, store_.CreateBranch(*wide));
  PagedSource source(512);  // 4 MiB: some seconds on this disk.
  const std::vector<TokenId> tokens = Tokens(512);
  AppendOptions options;
  options.durability = Durability::kPower;
  options.timeout_ns = 2'000'000;
  ASSERT_OK_ASSIGN(Ticket ticket, branch.Append(MakeDelta(tokens, &source.kv), options));
  const uint64_t before = sim_->scheduler->MonotonicNs();
  while (!ticket.done()) sim_->scheduler->Sleep(100'000);
  EXPECT_LT(sim_->scheduler->MonotonicNs() - before, 400'000'000u);
  EXPECT_TRUE(ticket.status().code() == StatusCode::kUnknownOutcome ||
              ticket.status().code() == StatusCode::kDeadlineExceeded)
      << ticket.status().ToString();
}

TEST_F(SlowDiskTest, CancelEndsATicketThatWaitsForTheDisk) {
  const std::vector<TokenId> tokens = Tokens(1);
  AppendOptions options;
  options.durability = Durability::kPower;
  ASSERT_OK_ASSIGN(Ticket ticket, chat_.Append(MakeDelta(tokens), options));
  const uint64_t before = sim_->scheduler->MonotonicNs();
  EXPECT_FAILS(ticket.Cancel(), StatusCode::kUnknownOutcome, "expected_length");
  EXPECT_LT(sim_->scheduler->MonotonicNs() - before, 10'000'000u);
  EXPECT_FAILS(ticket.Cancel(), StatusCode::kUnknownOutcome) << "it was over already";
  EXPECT_EQ(1u, *chat_.length());
}

TEST_F(SlowDiskTest, FullBuffersAreBusyOrShedTheKv) {
  auto wide = store_.RegisterModel(WideModel());
  ASSERT_OK(wide);
  ASSERT_OK_ASSIGN(Branch branch, store_.CreateBranch(*wide));
  constexpr uint64_t kEach = 4;  // 32 KiB, copied in the call.
  const std::vector<TokenId> tokens = Tokens(kEach);
  PagedSource source(kEach);
  Status status;
  uint64_t length = 0;
  AppendOptions options;
  options.durability = Durability::kPower;
  for (int i = 0; i < 10'000 && status.ok(); ++i) {
    source.group.position = length;
    auto ticket = branch.Append(MakeDelta(tokens, &source.kv), options);
    status = ticket.status();
    if (ticket.ok()) length += kEach;
  }
  EXPECT_FAILS(status, StatusCode::kBusy);
  EXPECT_EQ(length, *branch.length());
  EXPECT_GT(store_.Metrics().busy, 0u);
  options.overload = Overload::kShedKv;
  ASSERT_OK_ASSIGN(Ticket shed, branch.Append(MakeDelta(tokens, &source.kv), options));
  EXPECT_TRUE(shed.kv_shed());
  EXPECT_EQ(length + kEach, *branch.length());
  EXPECT_EQ(length, branch.Info()->kv_lengths[0]);
  // KV that comes after the gap does not connect and is shed as well.
  source.group.position = length + kEach;
  ASSERT_OK_ASSIGN(Ticket after, branch.Append(MakeDelta(tokens, &source.kv), options));
  EXPECT_TRUE(after.kv_shed());
  EXPECT_EQ(2u, store_.Metrics().kv_shed);
  // Another refusal than for want of room or of a connection is none to shed for.
  options.expected_length = 1;
  EXPECT_FAILS(branch.Append(MakeDelta(tokens), options), StatusCode::kConflict);
  options.expected_length.reset();
  ASSERT_OK(store_.Flush());
  options.overload = Overload::kFail;
  EXPECT_FAILS(branch.Append(MakeDelta(tokens, &source.kv), options), StatusCode::kInvalidArgument,
               "has KV up to");
  // Fill closes the gap.
  PagedSource fill(2 * kEach);
  fill.group.position = length;
  ASSERT_OK(branch.Fill(fill.kv));
  EXPECT_EQ(length + 2 * kEach, branch.Info()->kv_lengths[0]);
}

}  // namespace
}  // namespace cairn::testing
