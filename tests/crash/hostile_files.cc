// SPDX-License-Identifier: Apache-2.0
#include "tests/crash/hostile_files.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <utility>

#include "base/core/check.h"
#include "base/io/file_util.h"
#include "engine/follow/hint.h"
#include "engine/manifest/manifest.h"
#include "sim/world.h"
#include "sstable/index_writer.h"
#include "sstable/lsm_index.h"
#include "sstable/snapshot_table.h"
#include "tests/golden/golden_story.h"

namespace cairn::crash {

namespace {

using engine::Manifest;
using Bytes = std::vector<std::byte>;

constexpr size_t kNodeKeyBytes = 9;     // The letter and the node's number.
constexpr uint64_t kNewTable = 0x7000;  // The store has none of this number.

std::string Hex(uint64_t value) {
  char text[32];
  std::snprintf(text, sizeof text, "%#llx", static_cast<unsigned long long>(value));
  return text;
}

std::vector<uint64_t> Values(uint64_t now, unsigned bytes) {
  const uint64_t max = bytes == 8 ? UINT64_MAX : (uint64_t{1} << (8 * bytes)) - 1;
  std::set<uint64_t> values = {0, 1, max, max - 1, (now + 1) & max, (now - 1) & max, max / 2 + 1};
  if (bytes == 8) values.insert({uint64_t{1} << 32, uint64_t{1} << 62});
  values.erase(now);
  return {values.begin(), values.end()};
}

void Put(io::SimDisk& disk, const std::string& path, std::span<const std::byte> bytes) {
  if (!disk.ReadRaw(path).ok()) {
    CAIRN_CHECK(disk.Open(path, {.write = true, .create = true}).ok());
  }
  CAIRN_CHECK(disk.TruncateRaw(path, bytes.size()).ok());
  CAIRN_CHECK(disk.WriteRaw(path, 0, bytes).ok());
}

std::string ManifestPath(uint64_t number) {
  return std::string(kHostileStore) + "/MANIFEST-" + std::to_string(number);
}

Manifest ReadManifest(const io::SimDisk& base) {
  const auto disk = base.CrashClone(io::CrashChoice::KeepAll());
  auto manifest = engine::ReadManifest(*disk, kHostileStore);
  CAIRN_CHECK(manifest.ok());
  return std::move(*manifest);
}

void PutManifest(io::SimDisk& disk, const Manifest& manifest) {
  Put(disk, ManifestPath(manifest.number), engine::EncodeManifest(manifest));
}

class NoCallbacks final : public sstable::TableCallbacks {
 public:
  Result<uint64_t> NewTableNumber() override { return kNewTable; }
  Status TakeSpace(uint64_t) override { return Status::Ok(); }
  void ReturnSpace(uint64_t) override {}
};

struct Tables {
  Tables(io::SimDisk& disk, const StoreId& store) {
    context.files = &disk;
    context.directory = std::string(kHostileStore) + "/tables";
    context.store = store;
    context.cache = &cache;
    context.callbacks = &callbacks;
    context.counters = &counters;
  }
  NoCallbacks callbacks;
  sstable::BlockCache cache{1 << 20};
  sstable::TableCounters counters;
  sstable::TableContext context;
};

// ---------------------------------------------------------------- the index

IndexRecords ReadRecords(const io::SimDisk& base, const Manifest& manifest) {
  const auto disk = base.CrashClone(io::CrashChoice::KeepAll());
  Tables tables(*disk, manifest.store);
  const auto index = sstable::LsmIndex::Open({tables.context, {}}, manifest.index);
  CAIRN_CHECK(index.ok());
  IndexRecords records;
  const auto scan = (*index)->NewScan();
  for (scan->Seek(""); scan->valid(); scan->Next()) {
    records.emplace(scan->key(), std::string(*scan->value()));
  }
  CAIRN_CHECK(scan->status().ok());
  return records;
}

// The index consists of these records.
void PutRecords(io::SimDisk& disk, Manifest manifest, const IndexRecords& records) {
  Tables tables(disk, manifest.store);
  auto writer = sstable::IndexWriter::Create(tables.context, kNewTable);
  CAIRN_CHECK(writer.ok());
  for (const auto& [key, value] : records) {
    CAIRN_CHECK((*writer)->Add(key, sstable::MaybeValue(value)).ok());
  }
  const auto info = (*writer)->Finish();
  CAIRN_CHECK(info.ok());
  manifest.index = {{kNewTable, 1, info->bytes}};
  PutManifest(disk, manifest);
}

std::string KeyText(const std::string& key) {
  std::string text;
  for (const char c : key) {
    text += c >= ' ' && c <= '~' ? std::string(1, c) : Hex(static_cast<uint8_t>(c));
  }
  return text;
}

uint64_t Load(std::string_view bytes, unsigned width, bool big) {
  uint64_t value = 0;
  for (unsigned i = 0; i < width; ++i) {
    const auto byte = static_cast<uint8_t>(bytes[i]);
    value |= uint64_t{byte} << 8 * (big ? width - 1 - i : i);
  }
  return value;
}
void Store(uint64_t value, char* into, unsigned width, bool big) {
  for (unsigned i = 0; i < width; ++i) {
    into[i] = static_cast<char>(value >> 8 * (big ? width - 1 - i : i));
  }
}

// ---------------------------------------------------------------- what a store is asked for

bool IsForeign(StatusCode code) {
  // Codes of a caller's mistakes: no caller made one.
  return code == StatusCode::kInvalidArgument || code == StatusCode::kInvalidState ||
         code == StatusCode::kAlreadyExists || code == StatusCode::kNotFound;
}

void Ask(const cairn::Store& store, const BranchInfo& info) {
  const Branch branch(store.core(), info.id);
  static_cast<void>(branch.Path());
  static_cast<void>(branch.EvictedKv());
  static_cast<void>(branch.RestorableLength());
  static_cast<void>(branch.Spans(0, UINT64_MAX));
  static_cast<void>(branch.SamplerAt(UINT64_MAX));
  static_cast<void>(branch.MetadataAt(UINT64_MAX));
  constexpr uint64_t kTokensMax = 256;  // A caller brings the memory for what it asks.
  const uint64_t end = std::min(info.length, kTokensMax);
  static_cast<void>(branch.ReadTokens(0, end));
  const auto model = store.GetModel(info.model);
  if (!model.ok() || model->spec.groups.empty()) return;
  uint64_t bytes = 0;
  for (const LayerGroup& group : model->spec.groups) {
    constexpr uint64_t kBytesMax = 1 << 16;
    if (group.layers > kBytesMax || group.token_bytes() > kBytesMax) return;
    bytes += group.token_bytes() * end;
  }
  if (end == 0 || bytes > (64u << 20)) return;
  const auto restorable = branch.RestorableLength(end);
  if (!restorable.ok() || *restorable == 0) return;
  golden::Rows rows(model->spec,
                    std::vector<golden::RowRange>(model->spec.groups.size(), {0, *restorable}));
  RestoreRequest request;
  request.end = *restorable;
  request.into = rows.view();
  static_cast<void>(branch.Restore(request));
}

void AskAll(const cairn::Store& store) {
  static_cast<void>(store.Metrics());
  static_cast<void>(store.Namespaces());
  static_cast<void>(store.Models());
  for (const char* ns : {"", "tenant-a", "tenant-b"}) {
    const auto page = store.ListBranches(ns, "", 100);
    if (!page.ok()) continue;
    for (const BranchInfo& info : page->branches) Ask(store, info);
  }
  for (const char* name : {"chat", "what-if", "hybrid", "int8", "tokens", "late"}) {
    static_cast<void>(store.FindBranch(name));
  }
  static_cast<void>(store.Verify(VerifyLevel::kAll));
}

void GoOn(cairn::Store& store) {
  const std::vector<TokenId> ids = {1, 2, 3};
  for (const char* name : {"chat", "what-if", "hybrid", "int8", "tokens", "late"}) {
    auto branch = store.FindBranch(name);
    if (!branch.ok()) continue;
    static_cast<void>(branch->AppendSync({.tokens = ids}));
    const auto length = branch->length();
    if (length.ok()) static_cast<void>(branch->ForkAt(*length / 2, {}));
    if (length.ok()) static_cast<void>(branch->Rewind(*length / 3));
  }
  static_cast<void>(store.SetNamespace("tenant-a", {.max_bytes = 1, .evict = Evict::kBranches}));
  if (auto branch = store.FindBranch("second", "tenant-a"); branch.ok()) {
    static_cast<void>(branch->AppendSync({.tokens = ids}, {.timeout_ns = 1'000'000'000}));
  }
  if (auto branch = store.FindBranch("adapted", "tenant-b"); branch.ok()) {
    static_cast<void>(branch->Drop());
  }
  static_cast<void>(store.Compact());
  static_cast<void>(store.Checkpoint("/copy"));
}

}  // namespace

std::unique_ptr<io::SimDisk> HostileBase() {
  const io::SimWorld machine = io::MakeSimWorld(1);
  golden::TellFormat1(std::make_shared<io::World>(machine.world()), kHostileStore);
  return machine.disk->CrashClone(io::CrashChoice::KeepAll());
}

IndexRecords ReadIndexRecords(const io::SimDisk& base) {
  return ReadRecords(base, ReadManifest(base));
}
void PutIndexRecords(io::SimDisk& disk, const IndexRecords& records) {
  PutRecords(disk, ReadManifest(disk), records);
}

std::vector<HostileCase> HostileManifests(const io::SimDisk& base) {
  const Manifest whole = ReadManifest(base);
  std::vector<HostileCase> cases;
  const auto add = [&](const std::string& name, const Manifest& manifest) {
    cases.push_back(
        {"MANIFEST " + name, [manifest](io::SimDisk& disk) { PutManifest(disk, manifest); }});
  };
  using Field = std::function<uint64_t*(Manifest&)>;
  const std::vector<std::pair<const char*, Field>> fields = {
      {"segment_bytes", [](Manifest& m) { return &m.segment_bytes; }},
      {"log_start_segment", [](Manifest& m) { return &m.log_start_segment; }},
      {"next_file_number", [](Manifest& m) { return &m.next_file_number; }},
      {"next_id", [](Manifest& m) { return &m.next_id; }},
      {"last_sequence", [](Manifest& m) { return &m.last_sequence; }},
      {"created_at_ns", [](Manifest& m) { return &m.created_at_ns; }},
      {"index[0].number", [](Manifest& m) { return &m.index[0].number; }},
      {"index[0].bytes", [](Manifest& m) { return &m.index[0].bytes; }},
      {"index_sequence", [](Manifest& m) { return &m.index_sequence; }},
      {"replay_from.segment", [](Manifest& m) { return &m.replay_from.segment; }},
      {"replay_from.epoch", [](Manifest& m) { return &m.replay_from.epoch; }},
      {"replay_from.offset", [](Manifest& m) { return &m.replay_from.offset; }},
      {"replay_from.last_sequence", [](Manifest& m) { return &m.replay_from.last_sequence; }},
      {"replay_from.last_hash", [](Manifest& m) { return &m.replay_from.last_hash; }},
      {"epoch", [](Manifest& m) { return &m.epoch; }},
      {"counted_from", [](Manifest& m) { return &m.counted_from; }},
      {"earlier[0].sequence", [](Manifest& m) { return &m.history.earlier[0].sequence; }},
  };
  for (const auto& [name, field] : fields) {
    Manifest manifest = whole;
    for (const uint64_t value : Values(*field(manifest), 8)) {
      *field(manifest) = value;
      add(std::string(name) + " = " + Hex(value), manifest);
    }
  }
  wal::RestingSegment rests{1, whole.segment_bytes};
  using OfResting = std::function<uint64_t*(wal::RestingSegment&)>;
  const std::vector<std::pair<const char*, OfResting>> of_resting = {
      {"number", [](wal::RestingSegment& s) { return &s.number; }},
      {"end_offset", [](wal::RestingSegment& s) { return &s.end_offset; }}};
  for (const auto& [name, field] : of_resting) {
    for (const uint64_t value : Values(*field(rests), 8)) {
      wal::RestingSegment changed = rests;
      *field(changed) = value;
      Manifest manifest = whole;
      manifest.counted_from = 1;
      manifest.log_start_segment += 1;  // Then one may rest below.
      manifest.resting = {changed};
      add(std::string("resting ") + name + " = " + Hex(value), manifest);
    }
  }
  for (const sstable::LiveTable& table : whole.index) {
    engine::IndexStep step{table.number, whole.index_sequence, whole.replay_from};
    using OfStep = std::function<uint64_t*(engine::IndexStep&)>;
    const std::vector<std::pair<const char*, OfStep>> of_step = {
        {"table", [](engine::IndexStep& s) { return &s.table; }},
        {"index_sequence", [](engine::IndexStep& s) { return &s.index_sequence; }},
        {"segment", [](engine::IndexStep& s) { return &s.replay_from.segment; }},
        {"offset", [](engine::IndexStep& s) { return &s.replay_from.offset; }}};
    for (const auto& [name, field] : of_step) {
      for (const uint64_t value : Values(*field(step), 8)) {
        engine::IndexStep changed = step;
        *field(changed) = value;
        Manifest manifest = whole;
        manifest.steps = {changed};
        manifest.index.back().bytes += 1;  // Lost, and the step says how to do without it.
        add(std::string("step ") + name + " = " + Hex(value), manifest);
      }
    }
  }
  for (const uint64_t level : Values(whole.index[0].level, 4)) {
    Manifest manifest = whole;
    manifest.index[0].level = static_cast<uint32_t>(level);
    add("index[0].level = " + Hex(level), manifest);
  }
  for (const uint64_t number : {uint64_t{1} << 62, UINT64_MAX - 1, UINT64_MAX}) {
    Manifest manifest = whole;
    manifest.number = number;
    add("its name says " + Hex(number), manifest);
  }
  Manifest twice = whole;
  twice.index.push_back(twice.index[0]);
  add("names a table twice", twice);
  Manifest none = whole;
  none.index.clear();
  add("has no index", none);
  Manifest many = whole;
  for (uint64_t i = 0; i < 500'000; ++i) many.index.push_back({0x10000 + i, 0, 4096});
  add("has half a million tables", many);
  return cases;
}

std::vector<HostileCase> HostileIndexRecords(const io::SimDisk& base) {
  const Manifest manifest = ReadManifest(base);
  const auto records = std::make_shared<const IndexRecords>(ReadRecords(base, manifest));
  std::vector<HostileCase> cases;
  const auto add = [&](const std::string& key, const std::string& name, const std::string& now,
                       const std::string& value) {
    cases.push_back({"index record " + KeyText(key) + ": " + name, [=](io::SimDisk& disk) {
                       IndexRecords changed = *records;
                       changed.erase(key);
                       changed[now] = value;
                       PutRecords(disk, manifest, changed);
                     }});
  };
  std::map<std::tuple<char, size_t, std::string>, int> seen;  // Chunks by their lane.
  for (const auto& [key, value] : *records) {
    constexpr int kOfEach = 2;
    const bool is_chunk = key[0] == 'N' && key.size() > kNodeKeyBytes;
    const std::string lane = is_chunk ? key.substr(kNodeKeyBytes, 2) : std::string();
    if (seen[{key[0], is_chunk ? 2 : 1, lane}]++ >= (is_chunk ? 1 : kOfEach)) continue;
    // The first entries of long lists say what all others say.
    const size_t bytes = std::min<size_t>(value.size(), is_chunk ? 144 : 400);
    const uint64_t id = key.size() >= 9 ? Load(key.substr(1), 8, true) : 0;
    for (const unsigned width : {8u, 4u}) {
      for (size_t at = 0; at + width <= bytes; at += width) {
        std::vector<uint64_t> values = Values(Load(value.substr(at), width, false), width);
        if (width == 8) values.push_back(id);  // Above or below itself.
        for (const uint64_t with : values) {
          std::string changed = value;
          Store(with, changed.data() + at, width, false);
          add(key,
              "u" + std::to_string(8 * width) + " at " + std::to_string(at) + " = " + Hex(with),
              key, changed);
        }
      }
    }
    for (size_t at = 1; at + 8 <= key.size(); at += 8) {
      for (const uint64_t with : Values(Load(key.substr(at), 8, true), 8)) {
        std::string changed = key;
        Store(with, changed.data() + at, 8, true);
        add(key, "key at " + std::to_string(at) + " = " + Hex(with), changed, value);
      }
    }
  }
  return cases;
}

std::vector<HostileCase> HostileSnapshots(const io::SimDisk& base) {
  const Manifest manifest = ReadManifest(base);
  const StoreId store = manifest.store;
  std::vector<HostileCase> cases;
  for (const std::string& path : base.Files()) {
    if (!path.ends_with(".snapshot")) continue;
    const uint64_t number = std::stoull(path.substr(path.find_last_of('/') + 1), nullptr, 16);
    const Bytes whole = *base.ReadRaw(path);
    const uint64_t footer_at = whole.size() - sstable::kTableAlignment;
    const auto footer = sstable::ParseSnapshotFooter(std::span(whole).subspan(footer_at), store,
                                                     number, whole.size());
    CAIRN_CHECK(footer.ok());
    const uint64_t list_at = footer->fragments_offset;
    std::vector<sstable::FragmentEntry> fragments(footer->info.fragments);
    std::memcpy(fragments.data(), whole.data() + list_at, std::span(fragments).size_bytes());
    // From the innermost hash outwards.
    const auto seal = [=](Bytes bytes, size_t fragment) {
      const auto hash = [&](uint64_t at, uint64_t of, uint64_t length) {
        const uint64_t value =
            sstable::PlacedHash(std::span(bytes).subspan(of, length), store, number, of);
        std::memcpy(bytes.data() + at, &value, sizeof value);
      };
      const sstable::FragmentEntry& was = fragments[fragment];
      hash(list_at + fragment * sizeof was + offsetof(sstable::FragmentEntry, frames_hash),
           was.entries_offset, was.entries_bytes());
      hash(footer_at + offsetof(sstable::SnapshotFooter, fragments_hash), list_at,
           std::span(fragments).size_bytes());
      std::string block(reinterpret_cast<const char*>(bytes.data()) + footer_at,
                        sstable::kTableAlignment);
      sstable::SealBlock(block, store, number, footer_at);
      std::memcpy(bytes.data() + footer_at, block.data(), block.size());
      return bytes;
    };
    const auto add = [&](const std::string& what, uint64_t begin, uint64_t bytes, size_t fragment) {
      for (const unsigned width : {8u, 4u}) {
        for (uint64_t at = 0; at + width <= bytes; at += width) {
          const auto* text = reinterpret_cast<const char*>(whole.data()) + begin + at;
          for (const uint64_t with : Values(Load({text, width}, width, false), width)) {
            cases.push_back({path + " " + what + ", u" + std::to_string(8 * width) + " at " +
                                 std::to_string(at) + " = " + Hex(with),
                             [=](io::SimDisk& disk) {
                               Bytes changed = whole;
                               auto* into = reinterpret_cast<char*>(changed.data()) + begin + at;
                               Store(with, into, width, false);
                               Put(disk, path, seal(std::move(changed), fragment));
                             }});
          }
        }
      }
    };
    add("footer", footer_at + 8, sizeof(sstable::SnapshotFooter) - 8, 0);
    for (const size_t i : std::set<size_t>{0, fragments.size() / 2, fragments.size() - 1}) {
      add("fragment " + std::to_string(i), list_at + i * sizeof(sstable::FragmentEntry),
          sizeof(sstable::FragmentEntry), i);
      add("first frame of fragment " + std::to_string(i), fragments[i].entries_offset,
          sizeof(sstable::FrameEntry), i);
    }
  }
  return cases;
}

std::vector<HostileCase> HostileSmallFiles(const io::SimDisk& base) {
  const Manifest manifest = ReadManifest(base);
  std::vector<HostileCase> cases;
  const auto add_options = [&](const std::string& name, const std::string& text) {
    cases.push_back({"OPTIONS " + name, [text](io::SimDisk& disk) {
                       Put(disk, std::string(kHostileStore) + "/OPTIONS",
                           std::as_bytes(std::span(text)));
                     }});
  };
  add_options("is empty", "");
  add_options("has an unknown method", "sync_method=prayer\n");
  add_options("has no value", "sync_method\n");
  add_options("has zeros", std::string(5000, '\0'));
  add_options("has a long line", "probe=" + std::string(100'000, 'x') + "\n");
  add_options("is too long", std::string(2 << 20, '#'));
  using Field = std::function<uint64_t*(engine::Hint&)>;
  const std::vector<std::pair<const char*, Field>> fields = {
      {"epoch", [](engine::Hint& hint) { return &hint.epoch; }},
      {"durable", [](engine::Hint& hint) { return &hint.durable; }},
      {"manifest", [](engine::Hint& hint) { return &hint.manifest; }},
  };
  for (const auto& [name, field] : fields) {
    engine::Hint hint{1, manifest.last_sequence, manifest.number, manifest.history.id};
    for (const uint64_t value : Values(*field(hint), 8)) {
      *field(hint) = value;
      cases.push_back({std::string("HINT ") + name + " = " + Hex(value), [=](io::SimDisk& disk) {
                         engine::HintWriter writer(disk, kHostileStore);
                         CAIRN_CHECK(writer.Write(hint, manifest.store).ok());
                       }});
    }
  }
  return cases;
}

std::string RunHostile(const io::SimDisk& base, const HostileCase& one, HostileMode mode) {
  const io::SimWorld machine = io::CrashWorld(base, io::CrashChoice::KeepAll());
  one.apply(*machine.disk);
  Options options = golden::GoldenOptions();
  options.world = std::make_shared<io::World>(machine.world());
  options.read_only = mode == HostileMode::kRead;
  options.recovery = mode == HostileMode::kSetAside ? Recovery::kSetAside : Recovery::kRefuse;
  options.max_memory_bytes = 16 << 20;
  // A reader that believes that there is a writer goes by HINT.
  const auto lock = options.read_only ? machine.disk->Lock(std::string(kHostileStore) + "/LOCK")
                                      : Result<std::unique_ptr<io::FileLock>>(nullptr);
  auto store = cairn::Store::Open(kHostileStore, options);
  if (!store.ok()) {
    return IsForeign(store.status().code()) ? store.status().ToString() : std::string();
  }
  AskAll(*store);
  if (options.read_only) return "";
  GoOn(*store);
  static_cast<void>(store->Close());
  store = cairn::Store::Open(kHostileStore, options);
  if (!store.ok()) return "";
  AskAll(*store);
  static_cast<void>(store->Close());
  return "";
}

namespace {

// Memory of a store with the least max_memory_bytes, and the same amount for the test.
constexpr uint64_t kMoreMemoryMax = 128u << 20;
constexpr unsigned kSecondsMax = 60;

// The failure, or empty.
std::string RunApart(const io::SimDisk& base, const HostileCase& one, HostileMode mode) {
  rusage self{};
  getrusage(RUSAGE_SELF, &self);
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    alarm(kSecondsMax);
    const std::string found = RunHostile(base, one, mode);
    std::fputs(found.c_str(), stderr);
    _exit(found.empty() ? 0 : 1);
  }
  int status = 0;
  rusage used{};
  if (child < 0 || wait4(child, &status, 0, &used) != child) return "no process";
  if (WIFSIGNALED(status)) return "ended by signal " + std::to_string(WTERMSIG(status));
  if (WEXITSTATUS(status) != 0) return "a status that no file explains";
  const uint64_t more = 1024 * static_cast<uint64_t>(used.ru_maxrss - self.ru_maxrss);
  if (used.ru_maxrss > self.ru_maxrss && more > kMoreMemoryMax) {
    return std::to_string(more >> 20) + " MiB of memory";
  }
  return "";
}

}  // namespace

HostileSweep SweepHostile(uint64_t seed, size_t stride) {
  constexpr int kToldMax = 60;
  const auto base = HostileBase();
  std::vector<HostileCase> cases;
  for (auto&& some : {HostileManifests(*base), HostileSmallFiles(*base), HostileSnapshots(*base),
                      HostileIndexRecords(*base)}) {
    cases.insert(cases.end(), some.begin(), some.end());
  }
  HostileSweep sweep;
  int told = 0;
  for (size_t i = seed % stride; i < cases.size(); i += stride) {
    for (const auto mode : {HostileMode::kWrite, HostileMode::kRead, HostileMode::kSetAside}) {
      ++sweep.runs;
      const std::string wrong = RunApart(*base, cases[i], mode);
      if (wrong.empty() || ++told > kToldMax) continue;
      sweep.violations +=
          cases[i].name + ", mode " + std::to_string(static_cast<int>(mode)) + ": " + wrong + "\n";
    }
  }
  return sweep;
}

}  // namespace cairn::crash
