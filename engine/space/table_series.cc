// SPDX-License-Identifier: Apache-2.0
#include "engine/space/table_series.h"

#include <algorithm>
#include <utility>

#include "base/core/out_of_memory.h"
#include "engine/constants.h"
#include "engine/space/prove_table.h"
#include "engine/tree/decisions.h"

namespace cairn::engine {

TableSeries::TableSeries(const SpaceMeans& means, IndexFlusher* flusher, DeadTables* dead_tables)
    : means_(means),
      dead_tables_(dead_tables),
      reader_(means.reader, [&means, flusher](uint64_t written_bytes) -> Status {
        CAIRN_RETURN_IF_ERROR(means.pacer->Take(0, written_bytes));
        CAIRN_RETURN_IF_ERROR(means.log->poisoned());
        return flusher->DumpIfDue();
      }) {}

// The reserve is for one table after the other.
bool TableSeries::MayOverlap() const {
  return !reader_.Quiet() &&
         means_.ledger->room(wal::Purpose::kData) >= 2 * means_.gauge->TableRawBytesMax();
}

Status TableSeries::Add(std::shared_ptr<SealBatch> batch, std::span<SealSource> sources) {
  means_.reader->Hurry(means_.gauge->LogIsLong());
  if (!MayOverlap()) CAIRN_RETURN_IF_ERROR(Finish());
  Table next{.batch = std::move(batch), .sources = sources, .written = {}};
  Table before = std::exchange(last_, {});
  if (before.batch == nullptr) {
    CAIRN_RETURN_IF_ERROR(Write(&next));
    last_ = std::move(next);
    return Status::Ok();
  }
  Status written;
  const auto write = [&] {
    written = Guarded([&] { return Write(&next); });
    means_.pacer->StandStill();  // From here on it waits for the proof, which may be paused.
    return Status::Ok();
  };
  const Status proved = means_.parallel_for->Run(write, 1, [&](size_t) -> Status {
    CAIRN_RETURN_IF_ERROR(means_.pacer->Begin());
    const Status status = Guarded([&] { return Prove(before); });
    means_.pacer->End();
    return status;
  });
  means_.pacer->StandNoMore();
  if (written.ok()) last_ = std::move(next);
  CAIRN_RETURN_IF_ERROR(means_.pacer->GoOn());
  CAIRN_RETURN_IF_ERROR(proved);
  CAIRN_RETURN_IF_ERROR(Tell(&before));
  return written;
}

Status TableSeries::Finish() {
  Table table = std::exchange(last_, {});
  if (table.batch == nullptr) return Status::Ok();
  CAIRN_RETURN_IF_ERROR(Prove(table));
  return Tell(&table);
}

Status TableSeries::Write(Table* table) {
  reader_.Expect(table->sources);
  CAIRN_ASSIGN_OR_RETURN(table->written,
                         WriteSealTable(&means_.reader->tables(), means_.options->allocator,
                                        table->sources, &reader_, means_.parallel_for,
                                        means_.options->max_memory_bytes / kStageShare, &stages_));
  return Status::Ok();
}

Status TableSeries::Prove(const Table& table) const {
  const ProofMeans means{.tables = &means_.reader->tables(),
                         .allocator = means_.options->allocator,
                         .parallel_for = means_.parallel_for,
                         .take = [this](uint64_t read_bytes) -> Status {
                           CAIRN_RETURN_IF_ERROR(means_.pacer->Take(read_bytes, 0));
                           return means_.log->poisoned();
                         },
                         .quiet = [this] { return reader_.Quiet(); }};
  return ProveTable(means, table.written.info().number, table.sources, table.written.hashes());
}

Status TableSeries::Tell(Table* table) {
  const sstable::SnapshotInfo& info = table->written.info();
  table->written.Keep();
  bool used = false;
  for (size_t begin = 0; begin < table->sources.size(); begin += kSealedRangesAtOnce) {
    const auto some =
        table->sources.subspan(begin, std::min(kSealedRangesAtOnce, table->sources.size() - begin));
    const auto sealed = Guarded([&] {
      return means_.host->Change(
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
  means_.counters->seals.fetch_add(1, std::memory_order_relaxed);
  means_.counters->sealed_bytes.fetch_add(info.raw_bytes, std::memory_order_relaxed);
  return used ? Status::Ok() : dead_tables_->Delete(info.number, info.bytes);
}

}  // namespace cairn::engine
