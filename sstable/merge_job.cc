// SPDX-License-Identifier: Apache-2.0
#include "sstable/merge_job.h"

#include <algorithm>
#include <string>

#include "base/core/check.h"
#include "base/io/file_util.h"
#include "sstable/index_writer.h"

namespace cairn::sstable {
namespace {

Status FinishTable(const TableContext& context, IndexWriter& writer, TableList& tables) {
  CAIRN_ASSIGN_OR_RETURN(const TableInfo written, writer.Finish());
  auto table = IndexTable::Open(context, written.number);
  if (!table.ok()) {
    (void)DeleteTable(context, written.number, written.bytes);
    return table.status();
  }
  CAIRN_CHECK((*table)->info() == written);
  tables.push_back(*std::move(table));
  return Status::Ok();
}

Status WriteAll(const TableContext& context, RecordIterator& records, OlderData& older,
                uint64_t table_bytes, TableList& tables) {
  CAIRN_CHECK(table_bytes > 0);
  std::unique_ptr<IndexWriter> writer;
  std::string last;
  bool any = false;
  for (records.Seek(""); records.valid(); records.Next()) {
    const std::string_view key = records.key();
    if (any && key <= last) {
      // Blocks of the input are each in order, but not in sequence: no writer makes such a table.
      return Status(StatusCode::kCorruption, context.directory +
                                                 ": an index table is out of order at a key of " +
                                                 std::to_string(key.size()) + " bytes");
    }
    any = true;
    last.assign(key);
    if (!records.value() && !older.MayHold(key)) continue;
    if (writer == nullptr) {
      CAIRN_ASSIGN_OR_RETURN(const uint64_t number, context.callbacks->NewTableNumber());
      CAIRN_ASSIGN_OR_RETURN(writer, IndexWriter::Create(context, number));
    }
    CAIRN_RETURN_IF_ERROR(writer->Add(key, records.value()));
    if (writer->bytes() >= table_bytes) {
      CAIRN_RETURN_IF_ERROR(FinishTable(context, *writer, tables));
      writer = nullptr;
    }
  }
  CAIRN_RETURN_IF_ERROR(records.status());
  return writer == nullptr ? Status::Ok() : FinishTable(context, *writer, tables);
}

bool KeysBefore(const std::shared_ptr<const IndexTable>& a,
                const std::shared_ptr<const IndexTable>& b) {
  return a->info().smallest < b->info().smallest;
}

bool NewerFirst(const std::shared_ptr<const IndexTable>& a,
                const std::shared_ptr<const IndexTable>& b) {
  return a->info().number > b->info().number;
}

}  // namespace

LevelInfos InfosOf(const Levels& levels) {
  LevelInfos infos;
  for (size_t level = 0; level < kLevels; ++level) {
    for (const auto& table : levels[level]) infos[level].push_back(&table->info());
  }
  return infos;
}

void SortLevel(size_t level, TableList& tables) {
  CAIRN_CHECK(level < kLevels);
  std::sort(tables.begin(), tables.end(), level == 0 ? NewerFirst : KeysBefore);
}

const IndexTable* FindOverlap(const TableList& tables) {
  for (size_t i = 1; i < tables.size(); ++i) {
    if (tables[i]->info().smallest <= tables[i - 1]->info().largest) return tables[i].get();
  }
  return nullptr;
}

bool OlderData::MayHold(std::string_view key) {
  const auto holds = [&](const IndexTable& table) {
    return table.info().smallest <= key && key <= table.info().largest;
  };
  for (size_t level = first_; level < kLevels; ++level) {
    const TableList& tables = (*levels_)[level];
    if (level == 0) {
      for (const auto& table : tables) {
        if (holds(*table)) return true;
      }
      continue;
    }
    size_t& at = at_[level];
    while (at < tables.size() && tables[at]->info().largest < key) ++at;
    if (at < tables.size() && holds(*tables[at])) return true;
  }
  return false;
}

Result<TableList> WriteTables(const TableContext& context, RecordIterator& records,
                              OlderData& older, uint64_t table_bytes) {
  TableList tables;
  const Status status = WriteAll(context, records, older, table_bytes, tables);
  CAIRN_CHECK(FindOverlap(tables) == nullptr);
  if (status.ok()) return tables;
  while (!tables.empty()) {
    const TableInfo info = tables.back()->info();
    tables.pop_back();
    // Nothing names it; if it stays it is an orphan.
    (void)DeleteTable(context, info.number, info.bytes);
  }
  return status;
}

Status DeleteTable(const TableContext& context, uint64_t number, uint64_t bytes) {
  CAIRN_CHECK(context.callbacks != nullptr);
  CAIRN_RETURN_IF_ERROR(
      io::RemoveIfExists(*context.files, IndexTablePath(context.directory, number)));
  context.callbacks->ReturnSpace(bytes);
  return Status::Ok();
}

}  // namespace cairn::sstable
