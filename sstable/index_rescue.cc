// SPDX-License-Identifier: Apache-2.0
#include "sstable/index_rescue.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/io/file_util.h"
#include "base/io/forward_reader.h"

namespace cairn::sstable {

namespace {

bool IsNewer(size_t level, uint64_t number, size_t than_level, uint64_t than_number) {
  if (level != than_level) return level < than_level;
  return level == 0 && number > than_number;
}

// The data block that begins with these bytes, by its header alone; nothing: none does.
std::optional<uint32_t> BytesOfBlock(std::span<const std::byte> first, uint64_t room,
                                     BlockKind* kind) {
  const auto header = LoadAs<BlockHeader>(first.data());
  const uint64_t bytes = AlignUp(uint64_t{header.bytes}, uint64_t{kTableAlignment});
  if (header.magic != kBlockMagic || header.kind < static_cast<uint16_t>(BlockKind::kData) ||
      header.kind > static_cast<uint16_t>(BlockKind::kRoot) || bytes == 0 ||
      bytes > std::min<uint64_t>(room, kMaxBlockBytes)) {
    return std::nullopt;
  }
  *kind = static_cast<BlockKind>(header.kind);
  return static_cast<uint32_t>(bytes);
}

}  // namespace

// The records of a damaged table's readable blocks.
class IndexRescue::BlockRecords final : public RecordIterator {
 public:
  BlockRecords(const TableContext& context, const Source& source)
      : context_(context), source_(source), reader_(context.allocator) {}

  void Seek(std::string_view target) override {
    next_ = 0;
    valid_ = false;
    status_ = Open();
    if (status_.ok()) Enter();
    while (valid_ && records_.key() < target) Next();
  }
  void Next() override {
    records_.Next();
    if (!records_.valid()) Enter();
  }
  bool valid() const override { return valid_; }
  std::string_view key() const override { return records_.key(); }
  MaybeValue value() const override { return records_.value(); }
  Status status() const override { return status_; }

 private:
  Status Open() {
    CAIRN_ASSIGN_OR_RETURN(
        file_,
        context_.files->Open(IndexTablePath(context_.directory, source_.number), {.direct = true}));
    CAIRN_ASSIGN_OR_RETURN(const uint64_t bytes, file_->Size());
    reader_.Open(file_.get(), bytes / kTableAlignment * kTableAlignment);
    return Status::Ok();
  }
  // Goes to the first record of the next block.
  void Enter() {
    valid_ = false;
    if (next_ == source_.blocks.size()) return;
    const Block& place = source_.blocks[next_++];
    const auto bytes = reader_.Read(place.offset, place.bytes);
    if (!bytes.ok()) {
      status_ = bytes.status();
      return;
    }
    const auto block = BlockView::Parse(*bytes, BlockKind::kData);
    if (!block.ok()) {  // It was good a moment ago.
      status_ = block.status();
      return;
    }
    records_.Enter(*block);
    records_.SeekToFirst();
    valid_ = records_.valid();
  }

  const TableContext& context_;
  const Source& source_;
  std::unique_ptr<io::File> file_;
  io::ForwardReader reader_;
  BlockIterator records_;
  size_t next_ = 0;
  bool valid_ = false;
  Status status_;
};

Result<IndexRescue> IndexRescue::Look(const TableContext& context,
                                      std::span<const LiveTable> live) {
  IndexRescue rescue(context);
  for (const LiveTable& table : live) CAIRN_RETURN_IF_ERROR(rescue.LookAt(table));
  for (size_t level = 0; level < kLevels; ++level) {
    SortLevel(level, rescue.levels_[level]);
    const IndexTable* const overlapping = level == 0 ? nullptr : FindOverlap(rescue.levels_[level]);
    if (overlapping == nullptr) continue;
    return Status(
        StatusCode::kCorruption,
        At(overlapping->path(), 0) + "overlaps another table of level " + std::to_string(level));
  }
  std::sort(rescue.sources_.begin(), rescue.sources_.end(), [](const Source& a, const Source& b) {
    return a.level != b.level ? a.level < b.level : a.number > b.number;
  });
  return rescue;
}

Status IndexRescue::LookAt(const LiveTable& table) {
  const std::string path = IndexTablePath(context_.directory, table.number);
  if (table.level >= kLevels) {
    return Status(StatusCode::kCorruption, path + ": no level " + std::to_string(table.level));
  }
  const auto opened = IndexTable::Open(context_, table.number);
  Status status = opened.status();
  if (opened.ok() && (*opened)->info().bytes != table.bytes) {
    // Right bytes in the wrong store: none of its records belongs to this one.
    status = Status(StatusCode::kCorruption, At(path, 0) + "the table has another length");
  } else if (opened.ok()) {
    status = (*opened)->Verify();
    if (status.ok()) {
      whole_.push_back(table);
      levels_[table.level].push_back(*opened);
      sources_.push_back(
          {.level = table.level, .number = table.number, .whole = *opened, .blocks = {}});
      return Status::Ok();
    }
  }
  const bool missing = status.code() == StatusCode::kNotFound;
  if (!missing && status.code() != StatusCode::kCorruption) return status;
  if (first_damage_.ok()) first_damage_ = io::MissingIsCorruption(status);
  lost_.push_back({table, missing});
  if (!missing && !(opened.ok() && (*opened)->info().bytes != table.bytes)) {
    return ReadDamaged(table);
  }
  any_lost_[table.level] = true;
  if (table.level == 0) newest_lost_ = std::max(newest_lost_, table.number);
  return Status::Ok();
}

// Finds the readable data blocks, and the holes between them.
Status IndexRescue::ReadDamaged(const LiveTable& table) {
  const std::string path = IndexTablePath(context_.directory, table.number);
  CAIRN_ASSIGN_OR_RETURN(const auto file, context_.files->Open(path, {.direct = true}));
  CAIRN_ASSIGN_OR_RETURN(const uint64_t bytes, file->Size());
  const uint64_t end = bytes / kTableAlignment * kTableAlignment;
  io::ForwardReader reader(context_.allocator);
  reader.Open(file.get(), end);
  Source source{.level = table.level, .number = table.number, .whole = nullptr, .blocks = {}};
  std::string last;
  bool hole = false, ended = false;
  for (uint64_t at = 0; at < end && !ended;) {
    CAIRN_ASSIGN_OR_RETURN(const auto first, reader.Read(at, kTableAlignment));
    BlockKind kind = BlockKind::kData;
    const auto block_bytes = BytesOfBlock(first, end - at, &kind);
    std::optional<BlockView> block;
    std::span<const std::byte> read;
    if (block_bytes.has_value()) {
      CAIRN_ASSIGN_OR_RETURN(read, reader.Read(at, *block_bytes));
      if (CheckSeal(read, context_.store, table.number, at)) {
        auto parsed = BlockView::Parse(read, kind);
        if (parsed.ok()) block = *parsed;
      }
    }
    if (!block.has_value()) {
      hole = true;
      at += kTableAlignment;
      continue;
    }
    const uint64_t place = std::exchange(at, at + *block_bytes);
    ended = kind == BlockKind::kRoot;  // There is no data behind it.
    if (kind != BlockKind::kData) continue;
    BlockIterator record(*block);
    record.SeekToFirst();
    if (!record.valid() || (!source.blocks.empty() && record.key() <= last)) {
      hole = true;
      continue;
    }
    const std::string from = record.key();
    std::string to;
    for (; record.valid(); record.Next()) to = record.key();
    if (record.damaged()) {
      hole = true;
      continue;
    }
    if (hole) holes_.push_back({table.level, table.number, last, from});
    hole = false;
    last = std::move(to);
    source.blocks.push_back({place, *block_bytes});
  }
  if (hole || !ended) holes_.push_back({table.level, table.number, last, ""});
  sources_.push_back(std::move(source));
  return Status::Ok();
}

// Whether a whole table of this level has the keys around it. REQUIRES: not level 0.
bool IndexRescue::Covers(size_t level, std::string_view key) const {
  const TableList& tables = levels_[level];
  const size_t at = FirstTableNotBefore(tables, key);
  return at < tables.size() && tables[at]->info().smallest <= key;
}

bool IndexRescue::IsCertain(const Source& source, std::string_view key) const {
  if (newest_lost_ != 0 && IsNewer(0, newest_lost_, source.level, source.number)) return false;
  for (size_t level = 1; level < source.level; ++level) {
    if (any_lost_[level] && !Covers(level, key)) return false;
  }
  return std::none_of(holes_.begin(), holes_.end(), [&](const Hole& hole) {
    return IsNewer(hole.level, hole.number, source.level, source.number) && key > hole.after &&
           (hole.before.empty() || key < hole.before) &&
           (hole.level == 0 || !Covers(hole.level, key));
  });
}

std::unique_ptr<RecordIterator> IndexRescue::Read(const Source& source) const {
  if (source.whole != nullptr) return source.whole->NewMergeIterator();
  return std::make_unique<BlockRecords>(context_, source);
}

Status IndexRescue::Walk(const std::function<Status(const Record&)>& visit) const {
  std::vector<std::unique_ptr<RecordIterator>> readers;
  std::vector<size_t> heap;  // The smallest key, then the newest source, in front.
  const auto behind = [&](size_t a, size_t b) {
    const int order = readers[a]->key().compare(readers[b]->key());
    return order != 0 ? order > 0 : a > b;
  };
  const auto push = [&](size_t source) -> Status {
    if (!readers[source]->valid()) return readers[source]->status();
    heap.push_back(source);
    std::push_heap(heap.begin(), heap.end(), behind);
    return Status::Ok();
  };
  for (size_t i = 0; i < sources_.size(); ++i) {
    readers.push_back(Read(sources_[i]));
    readers[i]->Seek("");
    CAIRN_RETURN_IF_ERROR(push(i));
  }
  std::vector<size_t> same;  // Sources that have this key, the newest first.
  while (!heap.empty()) {
    same.clear();
    do {
      std::pop_heap(heap.begin(), heap.end(), behind);
      same.push_back(heap.back());
      heap.pop_back();
    } while (!heap.empty() && readers[heap.front()]->key() == readers[same.front()]->key());
    const RecordIterator& newest = *readers[same.front()];
    Record record{
        newest.key(), newest.value(), IsCertain(sources_[same.front()], newest.key()), {}};
    const auto whole = std::find_if(same.begin(), same.end(),
                                    [&](size_t i) { return sources_[i].whole != nullptr; });
    if (whole != same.end()) record.shown = readers[*whole]->value();
    CAIRN_RETURN_IF_ERROR(visit(record));
    for (const size_t source : same) {
      readers[source]->Next();
      CAIRN_RETURN_IF_ERROR(push(source));
    }
  }
  return Status::Ok();
}

}  // namespace cairn::sstable
