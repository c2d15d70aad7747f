// SPDX-License-Identifier: Apache-2.0
#include "engine/background/table_series.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/core/mutation.h"
#include "base/core/out_of_memory.h"
#include "engine/background/read_back.h"
#include "engine/config/constants.h"
#include "engine/tree/ops/decisions.h"

namespace cairn::engine {

class TableSeries::ReadBackJob {
 public:
  explicit ReadBackJob(io::Scheduler& scheduler) : scheduler_(scheduler) {}

  // False: the job has begun.
  bool Take() {
    uint32_t waits = kWaits;
    return state_.compare_exchange_strong(waits, kTaken);
  }
  void End(Status status) {
    status_ = std::move(status);
    state_.store(kEnded);
    scheduler_.WakeAll(state_);
  }
  // Another thread has taken it. False: it has not ended by the deadline.
  bool Await(uint64_t deadline_ns) {
    scheduler_.Wait(state_, kTaken, deadline_ns);
    return state_.load() == kEnded;
  }
  Status TakeStatus() { return std::move(status_); }

 private:
  enum : uint32_t { kWaits, kTaken, kEnded };
  io::Scheduler& scheduler_;
  std::atomic<uint32_t> state_{kWaits};
  Status status_;
};

TableSeries::TableSeries(const SpaceDeps& deps, IndexFlusher* flusher, DeadTables* dead_tables)
    : deps_(deps),
      flusher_(flusher),
      dead_tables_(dead_tables),
      reader_(deps.reader, [&deps, flusher](uint64_t written_bytes) -> Status {
        CAIRN_RETURN_IF_ERROR(deps.rate_limiter->Take(0, written_bytes));
        CAIRN_RETURN_IF_ERROR(deps.log->poisoned());
        return flusher->FlushTreeIfDue();
      }) {}

// The reserve has room for one table at a time.
bool TableSeries::MayOverlap() const {
  return !reader_.Quiet() && deps_.options->max_memory_bytes >= kOverlapMemoryMin &&
         deps_.ledger->room(wal::Purpose::kData) >= 2 * deps_.gauge->TableRawBytesMax();
}

Status TableSeries::Add(std::shared_ptr<SealBatch> batch, std::span<SealSource> sources) {
  deps_.reader->Hurry(deps_.gauge->LogIsLong());
  if (!MayOverlap()) CAIRN_RETURN_IF_ERROR(Finish());
  Table next{.batch = std::move(batch), .sources = sources, .written = {}};
  Status written, told;
  if (last_.batch == nullptr) {
    written = Write(&next);
  } else {
    Status verified;
    written = WriteBeside(&next, &verified);
    // There may have been memory for one of the two.
    if (verified.code() == StatusCode::kOutOfMemory) verified = ReadBackHere();
    told = verified.ok() ? Report() : std::move(verified);
    last_ = {};
  }
  if (written.ok()) last_ = std::move(next);
  return told.ok() ? written : told;
}

// The rate limiter counts two threads while both work, or one that does both in turn; it does not
// count this thread while it waits.
Status TableSeries::WriteBeside(Table* next, Status* verified) {
  RateLimiter& rate_limiter = *deps_.rate_limiter;
  io::Scheduler& scheduler = *deps_.world.scheduler;
  ReadBackJob read_back(scheduler);
  const auto foreground = [&]() -> Status {
    CAIRN_RETURN_IF_ERROR(rate_limiter.Begin());
    Status written = CatchBadAlloc([&] { return Write(next); });
    if (read_back.Take()) {
      read_back.End(CatchBadAlloc([&] { return ReadBackHere(); }));
      rate_limiter.End();
      return written;
    }
    for (bool ended = false; !ended;) {
      rate_limiter.EnterIdle();
      ended = read_back.Await(scheduler.MonotonicNs() + kPaceLookAgainNs);
      rate_limiter.LeaveIdle();
      if (written.ok()) written = rate_limiter.GoOn();
      if (written.ok()) written = CatchBadAlloc([&] { return flusher_->FlushTreeIfDue(); });
    }
    rate_limiter.End();
    return written;
  };
  const auto job = [&](size_t) -> Status {
    if (!read_back.Take()) return Status::Ok();
    Status status = rate_limiter.Begin();
    if (status.ok()) {
      status = CatchBadAlloc([&] {
        return ReadBack([&](uint64_t read_bytes) { return rate_limiter.Take(read_bytes, 0); });
      });
      rate_limiter.End();
    }
    read_back.End(std::move(status));
    return Status::Ok();
  };
  rate_limiter.EnterIdle();
  const Status written = CatchBadAlloc([&] { return deps_.parallel_for->Run(foreground, 1, job); });
  rate_limiter.LeaveIdle();
  // Not taken: the other thread was stopped, or had no memory, before it began.
  *verified = read_back.Take() ? Status(StatusCode::kOutOfMemory, "reading a table back")
                               : read_back.TakeStatus();
  return written;
}

Status TableSeries::Finish() {
  if (last_.batch == nullptr) return Status::Ok();
  const Status verified = ReadBackHere();
  const Status told = verified.ok() ? Report() : verified;
  last_ = {};
  return told;
}

Status TableSeries::Write(Table* table) {
  reader_.Expect(table->sources);
  CAIRN_ASSIGN_OR_RETURN(
      table->written,
      WriteSealTable(&deps_.reader->tables(), deps_.options->allocator, table->sources, &reader_,
                     deps_.parallel_for, deps_.options->max_memory_bytes / kStageShare, &stages_));
  return Status::Ok();
}

Status TableSeries::ReadBackHere() {
  return ReadBack([this](uint64_t read_bytes) -> Status {
    CAIRN_RETURN_IF_ERROR(deps_.rate_limiter->Take(read_bytes, 0));
    return flusher_->FlushTreeIfDue();
  });
}

// Reads back the last table.
Status TableSeries::ReadBack(const std::function<Status(uint64_t)>& take) const {
  if (!CAIRN_KEPT(kProveTable)) return Status::Ok();
  const ReadBackDeps deps{.tables = &deps_.reader->tables(),
                          .allocator = deps_.options->allocator,
                          .parallel_for = deps_.parallel_for,
                          .take = [&](uint64_t read_bytes) -> Status {
                            CAIRN_RETURN_IF_ERROR(take(read_bytes));
                            return deps_.log->poisoned();
                          },
                          .quiet = [this] { return reader_.Quiet(); }};
  return VerifyReadBack(deps, last_.written.info().number, last_.sources, last_.written.hashes());
}

Status TableSeries::Report() {
  const sstable::SnapshotInfo info = last_.written.info();
  last_.written.Keep();
  bool used = false;
  for (size_t begin = 0; begin < last_.sources.size(); begin += kSealedRangesAtOnce) {
    const auto some =
        last_.sources.subspan(begin, std::min(kSealedRangesAtOnce, last_.sources.size() - begin));
    const auto sealed = CatchBadAlloc([&] {
      return deps_.callbacks->Change(
          {.branches = {}, .nodes = {}, .names = {}, .decided = true},  // They are in memory.
          [&](const Tree& tree) -> Result<Op> {
            Op op = ResolveSeal(tree, info.number, info.bytes, some);
            if (op.sealed.empty()) return Status(StatusCode::kNotFound, "dropped meanwhile");
            return op;
          },
          wal::Log::Purpose::kReclaim);
    });
    if (!sealed.ok() && sealed.status().code() != StatusCode::kNotFound) {
      if (!used)
        CAIRN_RETURN_IF_ERROR(dead_tables_->Delete(info.number, info.bytes));  // Nothing names it.
      return sealed.status();
    }
    used |= sealed.ok();
  }
  deps_.counters->seals.fetch_add(1, std::memory_order_relaxed);
  deps_.counters->sealed_bytes.fetch_add(info.raw_bytes, std::memory_order_relaxed);
  return used ? Status::Ok() : dead_tables_->Delete(info.number, info.bytes);
}

}  // namespace cairn::engine
