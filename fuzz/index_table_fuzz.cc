// SPDX-License-Identifier: Apache-2.0
//
// An index table whose footer, root, partition and data blocks say anything under hashes that fit:
// it is refused, or what it gives comes in order, and a table with which Verify finds no fault
// holds what its footer counts, and gives it to who asks for many keys at once.
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/core/check.h"
#include "fuzz/input.h"
#include "fuzz/one_table.h"
#include "sstable/index_table.h"
#include "sstable/index_writer.h"
#include "sstable/lsm_index.h"

using namespace cairn;
using namespace cairn::sstable;

namespace {

constexpr StoreId kStore = fuzz::kTableStore;
constexpr uint64_t kNumber = fuzz::kTableNumber;
constexpr int kKeys = 120;

std::string KeyAt(int i) { return "key" + std::to_string(1000 + i * 3); }

// Several data blocks, one partition.
std::vector<std::byte> WholeTable() {
  fuzz::OneTable machine(IndexTablePath);
  auto writer = IndexWriter::Create(machine.context, kNumber);
  CAIRN_CHECK(writer.ok());
  for (int i = 0; i < kKeys; ++i) {
    std::string value(static_cast<size_t>(200 + i % 200), '\0');
    for (size_t at = 0; at < value.size(); ++at) value[at] = static_cast<char>(i * 7 + at);
    CAIRN_CHECK((*writer)->Add(KeyAt(i), i % 9 == 0 ? MaybeValue() : MaybeValue(value)).ok());
  }
  CAIRN_CHECK((*writer)->Finish().ok());
  return machine.Content();
}

// Where the blocks lie of the table that nothing was changed in; the footer is the last.
std::vector<BlockHandle> Blocks(const std::vector<std::byte>& whole) {
  const uint64_t footer_at = whole.size() - kTableAlignment;
  const auto footer =
      ParseFooter(std::span(whole).subspan(footer_at), kStore, kNumber, whole.size());
  CAIRN_CHECK(footer.ok());
  std::vector<BlockHandle> blocks = {footer->root};
  const auto add_entries = [&](const BlockHandle& block, BlockKind kind) {
    const auto view = BlockView::Parse(std::span(whole).subspan(block.offset, block.bytes), kind);
    CAIRN_CHECK(view.ok());
    BlockIterator entry(*view);
    for (entry.SeekToFirst(); entry.valid(); entry.Next()) {
      BlockHandle handle;
      CAIRN_CHECK(DecodeHandle(*entry.value(), &handle));
      blocks.push_back(handle);
    }
  };
  add_entries(blocks[0], BlockKind::kRoot);
  CAIRN_CHECK(blocks.size() == 2);
  const BlockHandle partition = blocks[1];
  add_entries(partition, BlockKind::kPartition);
  CAIRN_CHECK(blocks.size() > 3);
  blocks.push_back({footer_at, kTableAlignment});
  return blocks;
}

// A table on a machine, changed again and again.
class Changed {
 public:
  Changed() : whole_(WholeTable()), blocks_(Blocks(whole_)), changed_(blocks_.size()) {
    file_ = machine_.Open(true);
    CAIRN_CHECK(file_->Write(0, whole_, /*durable=*/false).ok());
  }

  // Each four bytes of the input change one of a block's, which then gets its hash.
  TableContext Change(fuzz::Input& input) {
    constexpr size_t kStepsMax = 32;
    for (size_t i = 0; i < blocks_.size(); ++i) {
      if (std::exchange(changed_[i], char{0}) != 0) Write(i);
    }
    for (size_t step = 0; step < kStepsMax && !input.empty(); ++step) {
      const size_t block = input.Take<uint8_t>() % blocks_.size();
      changed_[block] = 1;
      const uint64_t at = input.Take<uint16_t>() % blocks_[block].bytes;
      bytes_[blocks_[block].offset + at] ^= input.Take<std::byte>();
    }
    for (size_t i = 0; i < blocks_.size(); ++i) {
      if (changed_[i] == 0) continue;
      auto* begin = reinterpret_cast<char*>(bytes_.data()) + blocks_[i].offset;
      SealBlock({begin, blocks_[i].bytes}, kStore, kNumber, blocks_[i].offset);
      Write(i);
      std::memcpy(begin, whole_.data() + blocks_[i].offset, blocks_[i].bytes);
    }
    return machine_.context;
  }

 private:
  void Write(size_t block) {
    const auto& [offset, length] = blocks_[block];
    CAIRN_CHECK(file_->Write(offset, std::span(bytes_).subspan(offset, length), false).ok());
  }

  fuzz::OneTable machine_{IndexTablePath};
  std::unique_ptr<io::File> file_;
  const std::vector<std::byte> whole_;
  const std::vector<BlockHandle> blocks_;
  std::vector<std::byte> bytes_ = whole_;
  std::vector<char> changed_;  // By block, since the last input.
};

std::vector<LookupResult> AskForAll(const TableContext& context, const IndexTable& table,
                                    const std::vector<std::string>& keys) {
  const LiveTable live{.number = kNumber, .level = 1, .bytes = table.info().bytes};
  const auto index = LsmIndex::Open({.tables = context, .shape = {}}, std::span(&live, 1));
  CAIRN_CHECK(index.ok());
  const std::vector<std::string_view> views(keys.begin(), keys.end());
  return (*index)->MultiGet(views);
}

void CheckStatus(const Status& status) {
  CAIRN_CHECK(status.ok() || status.code() == StatusCode::kCorruption);
}

struct Walked {
  uint64_t records = 0;
  bool to_the_end = false, in_order = true;
  bool operator==(const Walked&) const = default;
};

Walked Walk(RecordIterator& records) {
  Walked walked;
  std::string last;
  for (records.Seek(""); records.valid(); records.Next()) {
    if (walked.records > 0 && records.key() <= last) walked.in_order = false;
    last = records.key();
    ++walked.records;
  }
  CheckStatus(records.status());
  walked.to_the_end = records.status().ok();
  return walked;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Changed changed;
  fuzz::Input input(data, size);
  TableContext context = changed.Change(input);
  BlockCache cache(1 << 20);
  context.cache = &cache;
  const auto opened = IndexTable::Open(context, kNumber);
  if (!opened.ok()) {
    CAIRN_CHECK(opened.status().code() == StatusCode::kCorruption ||
                opened.status().code() == StatusCode::kUnsupportedFormat);
    return 0;
  }
  const IndexTable& table = **opened;
  for (int i = -1; i <= kKeys; i += 37) {
    const auto found = table.Get(KeyAt(i), {});
    CheckStatus(found.status());
  }
  std::vector<std::string> keys;
  for (int i = -1; i <= kKeys; i += 7) keys.push_back(KeyAt(i));
  const std::vector<LookupResult> all = AskForAll(context, table, keys);
  for (const LookupResult& one : all) CheckStatus(one.status());
  const Walked walked = Walk(*table.NewIterator({}));
  CAIRN_CHECK(walked == Walk(*table.NewMergeIterator()));
  bool whole_still = true;
  table.VerifyEach([&](const Status& damage) {
    CAIRN_CHECK(damage.code() == StatusCode::kCorruption);
    whole_still = false;
  });
  CAIRN_CHECK(whole_still || size != 0);
  if (!whole_still) return 0;
  CAIRN_CHECK(walked.to_the_end && walked.in_order && walked.records == table.info().records);
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto found = table.Get(keys[i], {});
    CAIRN_CHECK(found.ok() && all[i].ok());
    const bool there = found->has_value() && !(*found)->tombstone;
    CAIRN_CHECK(there ? *all[i] == (*found)->value : !all[i]->has_value());
  }
  const auto record = table.NewIterator({});
  constexpr uint64_t kLookupStep = 11;  // Lookups are most of the time.
  uint64_t at = size;
  for (record->Seek(""); record->valid(); record->Next()) {
    if (++at % kLookupStep != 0) continue;
    const auto found = table.Get(record->key(), {});
    CAIRN_CHECK(found.ok() && found->has_value());
    CAIRN_CHECK((*found)->tombstone == !record->value().has_value());
  }
  return 0;
}
