// SPDX-License-Identifier: Apache-2.0
#include "tests/crash/format_rot.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "base/codec/kv_frame.h"
#include "base/codec/token_block.h"
#include "base/core/check.h"
#include "base/io/file_util.h"
#include "engine/follow/hint.h"
#include "engine/manifest/manifest.h"
#include "sim/world.h"
#include "sstable/index_table.h"
#include "sstable/index_writer.h"
#include "sstable/snapshot_table.h"
#include "sstable/snapshot_writer.h"
#include "tests/support/log_fixture.h"
#include "tests/support/test_store.h"
#include "wal/format.h"
#include "wal/segment_files.h"

namespace cairn::crash {

namespace {

using Bytes = std::vector<std::byte>;

// A reader's result for some bytes.
struct Outcome {
  Status status;
  std::string content;
};

struct Instance {
  std::string format;
  std::string file;  // Named in a refusal; empty: nothing, it is part of a file.
  Bytes bytes;
  std::function<Outcome(std::span<const std::byte>)> read;
  bool checked = true;
  bool may_be_ignored = false;  // A reader that cannot believe it goes on without: content "".
  std::vector<std::pair<uint64_t, uint64_t>> flipped{};  // Which bytes; none: all.
};

std::string TextOf(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

template <typename T>
Outcome Refused(const Result<T>& result) {
  return {result.status(), ""};
}

// A file on a disk of its own, whose whole content is replaced before each reading.
class OneFile {
 public:
  OneFile(std::shared_ptr<io::SimDisk> disk, std::string path)
      : disk_(std::move(disk)), path_(std::move(path)), now_(*disk_->ReadRaw(path_)) {}
  const Bytes& bytes() const { return now_; }
  void Put(std::span<const std::byte> bytes) {
    if (bytes.size() != now_.size()) {
      CAIRN_CHECK(disk_->TruncateRaw(path_, bytes.size()).ok());
      now_.resize(bytes.size());
      CAIRN_CHECK(disk_->WriteRaw(path_, 0, bytes).ok());
    } else {
      const auto [first, other] = std::ranges::mismatch(now_, bytes);
      const auto at = static_cast<uint64_t>(first - now_.begin());
      // The byte before this one differs as well, since it is being put right.
      auto last = bytes.size();
      while (last > at && now_[last - 1] == bytes[last - 1]) --last;
      CAIRN_CHECK(disk_->WriteRaw(path_, at, bytes.subspan(at, last - at)).ok());
    }
    std::ranges::copy(bytes, now_.begin());
  }
  io::SimDisk& disk() { return *disk_; }

 private:
  const std::shared_ptr<io::SimDisk> disk_;
  const std::string path_;
  Bytes now_;
};

class NumberCallbacks final : public sstable::TableCallbacks {
 public:
  Result<uint64_t> NewTableNumber() override { return ++number_; }
  Status TakeSpace(uint64_t) override { return Status::Ok(); }
  void ReturnSpace(uint64_t) override {}

 private:
  uint64_t number_ = 0;
};

constexpr StoreId kStore{{1, 2, 3, 4}};
constexpr uint64_t kTable = 5;

struct TablePlace {
  TablePlace() {
    CAIRN_CHECK(disk->CreateDirectory("tables").ok());
    context.files = disk.get();
    context.directory = "tables";
    context.store = kStore;
    context.cache = &cache;
    context.callbacks = &callbacks;
    context.counters = &counters;
  }
  std::shared_ptr<io::SimDisk> disk = std::make_shared<io::SimDisk>();
  NumberCallbacks callbacks;
  sstable::BlockCache cache{0};
  sstable::TableCounters counters;
  sstable::TableContext context;
};

// --- Frames and blocks, which the table around them vouches for ---

struct Sample {
  std::string name;
  FrameShape shape;
  Bytes raw, stored;
};

Bytes Elements(const FrameShape& shape, int kind) {
  Bytes raw(shape.raw_bytes());
  for (size_t i = 0; i + 1 < raw.size(); i += 2) {
    const size_t row = i / 2 / shape.channels, channel = i / 2 % shape.channels;
    auto element = static_cast<uint16_t>((i * 2654435761u) >> 7);  // Noise.
    // bf16 of magnitudes that are alike in a channel.
    if (kind == 1) element = static_cast<uint16_t>(0x3f80 + (channel % 5) * 128 + row % 128);
    if (kind == 2) element = 0x3f80;
    std::memcpy(raw.data() + i, &element, sizeof(element));
  }
  return raw;
}

std::vector<Sample> Frames() {
  std::vector<Sample> samples;
  const auto add = [&](const char* name, const FrameShape& shape, Bytes raw, FrameScales scales,
                       FrameCodec codec) {
    if (scales != FrameScales::kNone) CAIRN_CHECK(QuantiseFrame(shape, scales, raw));
    Bytes stored(MaxFrameBytes(shape));
    stored.resize(EncodeFrame(shape, raw, stored, {.flags = {}, .scales = scales}));
    CAIRN_CHECK(ReadFrameHeader(stored)->codec == codec);
    samples.push_back({name, shape, std::move(raw), std::move(stored)});
  };
  const FrameShape noise{.rows = 4, .channels = 16, .dtype = Dtype::kBf16};
  const FrameShape alike{.rows = 24, .channels = 64, .dtype = Dtype::kBf16};
  add("frame, raw", noise, Elements(noise, 0), FrameScales::kNone, FrameCodec::kRaw);
  add("frame, const", noise, Elements(noise, 2), FrameScales::kNone, FrameCodec::kConst);
  add("frame, kv64", alike, Elements(alike, 1), FrameScales::kNone, FrameCodec::kKv64);
  add("frame, int8", alike, Elements(alike, 1), FrameScales::kChannel, FrameCodec::kInt8);
  return samples;
}

std::vector<uint32_t> BlockTokens() {
  std::vector<uint32_t> tokens;
  for (uint32_t i = 0; i < 300; ++i) tokens.push_back(i % 17 * (i % 2 == 0 ? 3001u : 70'000u));
  return tokens;
}

Outcome ReadFrame(const Sample& sample, std::span<const std::byte> stored) {
  Bytes raw(sample.shape.raw_bytes());
  Status status = DecodeFrame(sample.shape, stored, raw);
  if (!status.ok()) return {std::move(status), ""};
  return {Status(), TextOf(raw)};
}

Outcome ReadTokens(std::span<const std::byte> block) {
  std::vector<uint32_t> tokens(BlockTokens().size());
  Status status = DecodeTokens(block, tokens);
  if (!status.ok()) return {std::move(status), ""};
  return {Status(), TextOf(std::as_bytes(std::span(tokens)))};
}

// --- Files ---

Instance SnapshotInstance() {
  const auto place = std::make_shared<TablePlace>();
  const auto samples = std::make_shared<std::vector<Sample>>(Frames());
  const Bytes block = *EncodeTokens(BlockTokens());
  auto writer =
      *sstable::SnapshotWriter::Create(place->context, sstable::SnapshotKind::kPages, kTable);
  writer->BeginFragment(
      {.node = 3, .lane = 0, .begin = 0, .count = 300, .page_rows = 512, .slices = 1});
  CAIRN_CHECK(writer->AddFrame(block, 1200).ok());
  for (uint32_t i = 0; i < samples->size(); ++i) {
    const Sample& sample = (*samples)[i];
    const uint32_t rows = sample.shape.rows;
    writer->BeginFragment(
        {.node = 4 + i, .lane = 1, .begin = 9, .count = rows, .page_rows = rows, .slices = 1});
    CAIRN_CHECK(
        writer->AddFrame(sample.stored, static_cast<uint32_t>(sample.shape.raw_bytes())).ok());
  }
  CAIRN_CHECK(writer->Finish().ok());
  const std::string path = sstable::SnapshotTablePath("tables", kTable);
  const auto file = std::make_shared<OneFile>(place->disk, path);
  return {"snapshot table", path, file->bytes(), [=](std::span<const std::byte> bytes) -> Outcome {
            file->Put(bytes);
            const auto table = sstable::SnapshotTable::Open(place->context, kTable);
            if (!table.ok()) return Refused(table);
            const auto fragments = (*table)->Fragments();
            if (!fragments.ok()) return Refused(fragments);
            Outcome all;
            for (const sstable::FragmentEntry& fragment : *fragments) {
              const auto frames = (*table)->Frames(fragment);
              if (!frames.ok()) return Refused(frames);
              for (const sstable::FrameEntry& frame : *frames) {
                const auto stored = bytes.subspan(frame.offset, frame.stored_bytes);
                Status good = (*table)->Verify(frame, stored);
                if (!good.ok()) return {std::move(good), ""};
                const Outcome one = fragment.lane == 0
                                        ? ReadTokens(stored)
                                        : ReadFrame((*samples)[fragment.node - 4], stored);
                if (!one.status.ok()) return one;
                all.content += std::to_string(fragment.node) + ":" +
                               std::to_string(fragment.begin) + "+" +
                               std::to_string(fragment.count) + "=" + one.content;
              }
            }
            return all;
          }};
}

Instance IndexInstance() {
  const auto place = std::make_shared<TablePlace>();
  auto writer = *sstable::IndexWriter::Create(place->context, kTable);
  for (int i = 0; i < 60; ++i) {
    const std::string key = "key" + std::to_string(100 + i);
    CAIRN_CHECK(
        writer->Add(key, i % 7 == 0 ? sstable::MaybeValue() : sstable::MaybeValue(key)).ok());
  }
  CAIRN_CHECK(writer->Finish().ok());
  const std::string path = sstable::IndexTablePath("tables", kTable);
  const auto file = std::make_shared<OneFile>(place->disk, path);
  return {"index table", path, file->bytes(), [=](std::span<const std::byte> bytes) -> Outcome {
            file->Put(bytes);
            const auto table = sstable::IndexTable::Open(place->context, kTable);
            if (!table.ok()) return Refused(table);
            // Only what a lookup passes through: the filter is on the way, too.
            const auto found = (*table)->Get("key117", {});
            if (!found.ok()) return Refused(found);
            if (!found->has_value()) return {Status(), "key117 is gone"};
            Outcome all;
            const auto walk = (*table)->NewMergeIterator();
            for (walk->Seek(""); walk->valid(); walk->Next()) {
              all.content += std::string(walk->key()) + "=" +
                             std::string(walk->value().value_or("deleted")) + "\n";
            }
            if (!walk->status().ok()) return {walk->status(), ""};
            return all;
          }};
}

Instance ManifestInstance() {
  engine::Manifest manifest;
  manifest.number = 3;
  manifest.store = kStore;
  manifest.segment_bytes = 1 << 20;
  manifest.last_sequence = manifest.index_sequence = 77;
  manifest.index = {{5, 0, 4096}, {9, 1, 8192}};
  manifest.replay_from = {2, 1, 4096, 60, 12345};
  return {"MANIFEST", "MANIFEST-3", engine::EncodeManifest(manifest),
          [](std::span<const std::byte> bytes) -> Outcome {
            const auto decoded = engine::DecodeManifest("store/MANIFEST-3", bytes);
            if (!decoded.ok()) return Refused(decoded);
            return {Status(), TextOf(engine::EncodeManifest(*decoded))};
          }};
}

// For people, but for one line, and both of its values are safe.
Instance OptionsInstance() {
  const auto disk = std::make_shared<io::SimDisk>();
  engine::StoreOptionsFile options;
  options.sync_method = wal::SyncMethod::kDurableWrite;
  options.probe = "fdatasync 41 us, dsync 39 us";
  options.volume = "ext4";
  CAIRN_CHECK(engine::WriteOptionsFile(*disk, "", options).ok());
  const auto file = std::make_shared<OneFile>(disk, "OPTIONS");
  return {"OPTIONS", "OPTIONS", file->bytes(),
          [=](std::span<const std::byte> bytes) -> Outcome {
            file->Put(bytes);
            const auto read = engine::ReadOptionsFile(*disk, "");
            if (!read.ok()) return Refused(read);
            const bool dsync = read->sync_method == wal::SyncMethod::kDurableWrite;
            return {Status(), dsync ? "dsync" : "fdatasync"};
          },
          false};
}

Instance HintInstance() {
  const auto disk = std::make_shared<io::SimDisk>();
  {
    engine::HintWriter writer(*disk, "");
    CAIRN_CHECK(writer.Write({3, 0x1234, 7}, kStore).ok());
  }
  const auto file = std::make_shared<OneFile>(disk, engine::kHintFile);
  return {"HINT",
          "",
          file->bytes(),
          [=](std::span<const std::byte> bytes) -> Outcome {
            file->Put(bytes);
            const auto hint = engine::ReadHint(*disk, "", kStore);
            if (!hint.has_value()) return {};
            return {Status(), std::to_string(hint->epoch) + " " + std::to_string(hint->durable) +
                                  " " + std::to_string(hint->manifest)};
          },
          true,
          true};
}

// A log that was closed, so nothing of it may go. Two segments; the first is full.
struct LogSample {
  std::shared_ptr<io::SimDisk> disk;
  std::vector<std::string> paths;
  std::string content;
};

std::string ContentOf(const wal::Recovered& found) {
  std::string content;
  for (const wal::TestRecord& record : found.records) {
    content += std::to_string(record.sequence) + "/" + std::to_string(record.kind) + ":" +
               TextOf(record.fields);
    for (const auto& strip : record.strips) content += "|" + TextOf(strip);
  }
  return content;
}

LogSample MakeLog() {
  const io::SimWorld machine = io::MakeSimWorld(1);
  {
    wal::LogFixture log(machine.world());
    log.OpenLog();
    const auto add = [&](std::vector<size_t> strips) {
      const uint64_t sequence = log.Append(wal::WithStrips(3, std::move(strips)));
      CAIRN_CHECK(log.log->Wait(sequence, true, io::kNoDeadline).ok());
    };
    add({100, 3000});
    add({});
    for (int i = 0; i < 5; ++i) add({57'000});  // Fills the segment: it gets a footer.
    add({40});
    CAIRN_CHECK(log.log->Close().ok());
  }
  LogSample sample;
  sample.disk = machine.disk->CrashClone(io::CrashChoice::KeepAll());
  for (const std::string& path : sample.disk->Files()) {
    if (path.find("spare") == std::string::npos) sample.paths.push_back(path);
  }
  return sample;
}

// `ranges`: the bytes that mean something and are not 57,000 of noise.
std::vector<std::pair<uint64_t, uint64_t>> LogRanges(const Bytes& bytes) {
  std::vector<std::pair<uint64_t, uint64_t>> ranges = {{0, 256}};
  for (uint64_t at = wal::kFirstGroupOffset; at + wal::kBlock <= bytes.size(); at += wal::kBlock) {
    const auto group = wal::LoadAs<wal::GroupHeader>(bytes.data() + at);
    if (group.magic != wal::kGroupMagic) continue;
    ranges.push_back({at, at + std::min<uint64_t>(group.length, 3600)});
  }
  const uint64_t trailer_at = bytes.size() - sizeof(wal::FooterTrailer);
  const auto trailer = wal::LoadAs<wal::FooterTrailer>(bytes.data() + trailer_at);
  if (trailer.magic == wal::kFooterMagic) {
    ranges.push_back({trailer.footer_offset, trailer.footer_offset + trailer.entries_bytes});
    ranges.push_back({trailer_at, bytes.size()});
  }
  return ranges;
}

Instance LogInstance(size_t segment, const char* name) {
  const auto sample = std::make_shared<LogSample>(MakeLog());
  const std::string path = sample->paths.at(segment);
  const auto file = std::make_shared<OneFile>(sample->disk, path);
  const auto world = std::make_shared<io::World>(
      io::World{.files = sample->disk, .scheduler = std::make_shared<io::SimScheduler>(1)});
  const std::string base = path.substr(path.rfind('/') + 1);
  Instance instance{name, base, file->bytes(), [=](std::span<const std::byte> bytes) -> Outcome {
                      file->Put(bytes);
                      wal::RecoveryOptions options;
                      options.directory = "log";
                      options.store = wal::kTestStore;
                      options.read_only = true;
                      const wal::Recovered found = wal::RecoverLog(*world, options);
                      if (!found.status.ok()) return {found.status, ""};
                      // Its reader gets an error naming the strip.
                      if (!found.damaged_strips.empty()) {
                        return {Status(StatusCode::kCorruption, base), ""};
                      }
                      return {Status(), ContentOf(found)};
                    }};
  instance.flipped = LogRanges(instance.bytes);
  return instance;
}

std::vector<Instance> Instances() {
  std::vector<Instance> instances;
  instances.push_back(ManifestInstance());
  instances.push_back(OptionsInstance());
  instances.push_back(HintInstance());
  instances.push_back(LogInstance(0, "log, a full segment"));
  instances.push_back(LogInstance(1, "log, the last segment"));
  instances.push_back(SnapshotInstance());
  instances.push_back(IndexInstance());
  instances.push_back({"token block", "", *EncodeTokens(BlockTokens()), ReadTokens, false});
  for (const Sample& sample : Frames()) {
    instances.push_back(
        {sample.name, "", sample.stored,
         [sample](std::span<const std::byte> stored) { return ReadFrame(sample, stored); }, false});
  }
  return instances;
}

// Where a file has only zeros, lengths that are no multiple of it show nothing new.
constexpr uint64_t kOfZeros = 64;

class Rotter {
 public:
  Rotter(const Instance& instance, const FormatRotOptions& options)
      : instance_(instance), options_(options) {}

  FormatRot Run() {
    result_.format = instance_.format;
    result_.bytes = instance_.bytes.size();
    result_.checked = instance_.checked;
    const Outcome original = instance_.read(instance_.bytes);
    CAIRN_CHECK(original.status.ok());
    content_ = original.content;
    std::vector<std::pair<uint64_t, uint64_t>> ranges = instance_.flipped;
    if (ranges.empty()) ranges = {{0, instance_.bytes.size()}};
    Bytes bytes = instance_.bytes;
    for (const auto& [begin, end] : ranges) {
      for (uint64_t bit = begin * 8 + options_.seed % options_.bit_stride; bit < end * 8;
           bit += options_.bit_stride) {
        const auto mask = static_cast<std::byte>(1u << (bit % 8));
        bytes[bit / 8] ^= mask;
        ++result_.flips;
        Judge("bit " + std::to_string(bit % 8) + " of byte " + std::to_string(bit / 8), bytes);
        bytes[bit / 8] ^= mask;
      }
    }
    const auto is_flipped = [&](uint64_t at) {
      return std::ranges::any_of(
          ranges, [&](const auto& range) { return range.first <= at && at <= range.second; });
    };
    for (uint64_t cut = options_.seed % options_.cut_stride; cut < bytes.size();
         cut += options_.cut_stride) {
      if (cut % kOfZeros != 0 && !is_flipped(cut)) continue;
      ++result_.cuts;
      // In memory of its very length, so that a step too far is seen by a sanitizer.
      const Bytes rest(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(cut));
      Judge("cut to " + std::to_string(cut), rest);
    }
    return result_;
  }

 private:
  void Judge(const std::string& what, std::span<const std::byte> bytes) {
    const Outcome outcome = instance_.read(bytes);
    const auto violation = [&](const std::string& why) {
      if (result_.violation.empty()) result_.violation = what + ": " + why;
    };
    if (!outcome.status.ok()) {
      ++result_.refused;
      const StatusCode code = outcome.status.code();
      if (code != StatusCode::kCorruption && code != StatusCode::kUnsupportedFormat) {
        violation(outcome.status.ToString());
      }
      if (outcome.status.message().find(instance_.file) == std::string_view::npos) {
        violation("does not name the file: " + outcome.status.ToString());
      }
    } else if (outcome.content == content_) {
      ++result_.unchanged;
    } else if (outcome.content.empty() && instance_.may_be_ignored) {
      ++result_.refused;
    } else {
      ++result_.other;
      if (instance_.checked) violation("other content");
    }
  }

  const Instance& instance_;
  const FormatRotOptions& options_;
  std::string content_;
  FormatRot result_;
};

}  // namespace

std::string FormatRot::ToString() const {
  return format + " (" + std::to_string(bytes) + " bytes): " + std::to_string(flips) + " flips, " +
         std::to_string(cuts) + " cuts; " + std::to_string(refused) + " refused, " +
         std::to_string(unchanged) + " the same" +
         (checked ? "" : ", " + std::to_string(other) + " other content");
}

std::vector<FormatRot> RunFormatRot(const FormatRotOptions& options) {
  std::vector<FormatRot> results;
  for (const Instance& instance : Instances()) results.push_back(Rotter(instance, options).Run());
  return results;
}

}  // namespace cairn::crash
