// SPDX-License-Identifier: Apache-2.0
//
// objects: pages under keys, put and read in batches, beside the same bytes appended to a branch,
// raw, and one file a key, as file backends of cache servers do it (write beside, rename; read
// whole); and whether keys are there, by the directory in memory and by stat.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>

#include "base/core/aligned_buffer.h"
#include "base/core/check.h"
#include "cairn/objects.h"
#include "tools/bench/fixture.h"
#include "tools/bench/machine.h"
#include "tools/bench/raw.h"

namespace cairn::bench {
namespace {

constexpr uint64_t kBatch = 64;
constexpr uint32_t kPageBytes = 4096;
constexpr uint64_t kAsked = 1000;  // Keys of one Exists.
constexpr int kLooks = 200;

// Names of pages, as engines make them of hashes: 64 hexadecimal digits.
std::string KeyAt(uint64_t i) {
  char text[65];
  uint64_t state = i + 1;
  for (int part = 0; part < 4; ++part) {
    state = (state ^ (state >> 29)) * 0xBF58476D1CE4E5B9 + 0x9E3779B97F4A7C15;
    std::snprintf(text + 16 * part, 17, "%016llx", static_cast<unsigned long long>(state));
  }
  return text;
}

std::vector<std::string> KeysFrom(uint64_t first, uint64_t count) {
  std::vector<std::string> keys;
  for (uint64_t i = 0; i < count; ++i) keys.push_back(KeyAt(first + i));
  return keys;
}

Status Failed(const char* call, const std::string& path) {
  return Status(StatusCode::kIoError,
                path + ": " + call + ": " + std::strerror(errno));  // NOLINT(concurrency-mt-unsafe)
}

// One file a key.
class Files {
 public:
  static Result<Files> Create(std::string directory) {
    if (mkdir(directory.c_str(), 0700) != 0) return Failed("mkdir", directory);
    return Files(std::move(directory));
  }
  const std::string& directory() const { return directory_; }
  std::string PathOf(const std::string& key) const { return directory_ + "/" + key; }

  Status Put(const std::string& key, std::span<const std::byte> bytes, bool synced) const {
    const std::string path = PathOf(key), beside = path + ".tmp";
    const int file = open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file < 0) return Failed("open", beside);
    const bool written =
        write(file, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()) &&
        (!synced || fdatasync(file) == 0);
    close(file);
    if (!written) return Failed("write", beside);
    if (rename(beside.c_str(), path.c_str()) != 0) return Failed("rename", path);
    return Status::Ok();
  }
  Status SyncNames() const {
    const int directory = open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool synced = directory >= 0 && fsync(directory) == 0;
    if (directory >= 0) close(directory);
    return synced ? Status::Ok() : Failed("fsync", directory_);
  }
  Status Get(const std::string& key, std::span<std::byte> into) const {
    const std::string path = PathOf(key);
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) return Failed("open", path);
    const bool whole = read(file, into.data(), into.size()) == static_cast<ssize_t>(into.size());
    close(file);
    return whole ? Status::Ok() : Failed("read", path);
  }
  bool Has(const std::string& key) const { return access(PathOf(key).c_str(), F_OK) == 0; }

 private:
  explicit Files(std::string directory) : directory_(std::move(directory)) {}
  std::string directory_;
};

// The store's side of the batches.
class ObjectSide {
 public:
  ObjectSide(const Config& config, std::string path, uint64_t object_bytes)
      : path_(std::move(path)), object_bytes_(object_bytes), into_(kBatch * object_bytes) {
    options_.segment_bytes = config.segment_bytes;
    options_.direct_ingest_bytes = 0;
  }
  Status Open(Report* report) {
    CAIRN_ASSIGN_OR_RETURN(store_, OpenStore(path_, options_, report));
    CAIRN_ASSIGN_OR_RETURN(
        class_, Objects(store_).RegisterClass({.name = "bench", .page_bytes = kPageBytes}));
    return Status::Ok();
  }
  Status Put(std::span<const std::byte> bytes) {
    const std::vector<std::string> keys = KeysFrom(put_, kBatch);
    std::vector<ObjectPut> puts;
    for (uint64_t i = 0; i < kBatch; ++i) {
      puts.push_back({.key = keys[i], .value = bytes.subspan(i * object_bytes_, object_bytes_)});
    }
    put_ += kBatch;
    CAIRN_ASSIGN_OR_RETURN(
        const std::vector<PutResult> results,
        Objects(store_).PutBatch(puts, {.object_class = class_, .durability = Durability::kPower}));
    for (const PutResult& result : results) CAIRN_RETURN_IF_ERROR(result.status);
    return Status::Ok();
  }
  // Nothing is in memory afterwards, neither the store's nor the system's.
  Status Reopen(Report* report) {
    CAIRN_RETURN_IF_ERROR(store_.Close());
    DropFileCaches(path_);
    CAIRN_RETURN_IF_ERROR(Open(report));
    return WaitForPool(store_, 0);
  }
  Status Get(uint64_t first) {
    const std::vector<std::string> keys = KeysFrom(first, kBatch);
    std::vector<ObjectGet> gets;
    for (uint64_t i = 0; i < kBatch; ++i) {
      gets.push_back(
          {.key = keys[i], .into = std::span(into_).subspan(i * object_bytes_, object_bytes_)});
    }
    CAIRN_ASSIGN_OR_RETURN(const std::vector<GetResult> results, Objects(store_).GetBatch(gets));
    for (const GetResult& result : results) CAIRN_RETURN_IF_ERROR(result.status);
    return Status::Ok();
  }
  bool GotIs(std::span<const std::byte> bytes) const {
    return std::equal(bytes.begin(), bytes.end(), into_.begin(), into_.end());
  }
  uint64_t count() const { return put_; }
  Store& store() { return store_; }

 private:
  const std::string path_;
  const uint64_t object_bytes_;
  Options options_{};
  Store store_{};
  ObjectClassId class_{};
  uint64_t put_ = 0;
  std::vector<std::byte> into_;
};

// The same bytes to a branch whose model has the same shape.
Result<Branch> MakeBranch(Store& store) {
  ModelSpec model;
  model.identity.name = "rows";
  LayerGroup& group = model.groups.emplace_back();
  group.name = "rows";
  group.layers = 1;
  Plane& plane = group.planes.emplace_back();
  plane.name = "rows";
  plane.row_bytes = kPageBytes;
  CAIRN_ASSIGN_OR_RETURN(const ModelId id, store.RegisterModel(model));
  return store.CreateBranch(id, {.name = "rows"});
}

Status AppendRows(Branch& branch, std::span<std::byte> bytes, uint64_t position) {
  std::byte* const base = bytes.data();
  PlaneView plane;
  plane.layer_bases = {&base, 1};
  plane.token_stride = kPageBytes;
  GroupView group;
  group.position = position;
  group.count = bytes.size() / kPageBytes;
  group.planes = {&plane, 1};
  const KvView view{.groups = {&group, 1}};
  const std::vector<TokenId> ids(group.count, kPageBytes);
  return branch.AppendSync(TokenDelta(ids, &view), AppendAt(Durability::kPower)).status();
}

Status MeasureBatches(const Config& config, const std::string& scratch, const Files& files,
                      Report* report) {
  const uint64_t object_bytes = config.object_bytes;
  const uint64_t batch_bytes = kBatch * object_bytes;
  AlignedBuffer bytes = AlignedBuffer::TryAllocate(Allocator::Default(), batch_bytes, 4096);
  if (bytes.empty()) return Status(StatusCode::kOutOfMemory, "memory of a batch");
  std::mt19937_64 random(1);
  for (std::byte& byte : bytes.span()) byte = static_cast<std::byte>(random());
  const uint64_t ops = std::max<uint64_t>(1, config.source_bytes / batch_bytes / config.rounds);
  CAIRN_ASSIGN_OR_RETURN(
      auto raw_file, RawFile::Create(scratch + "/raw", (ops + 1) * config.rounds * batch_bytes));
  ObjectSide objects(config, scratch + "/objects", object_bytes);
  CAIRN_RETURN_IF_ERROR(objects.Open(report));
  Options plain;
  plain.segment_bytes = config.segment_bytes;
  plain.direct_ingest_bytes = 0;
  CAIRN_ASSIGN_OR_RETURN(Store rows, OpenStore(scratch + "/rows", plain, report));
  CAIRN_ASSIGN_OR_RETURN(Branch branch, MakeBranch(rows));

  const auto arm_of = [&](const char* name, std::function<Status()> op) {
    Arm arm{.name = name, .units_per_op = kBatch, .bytes_per_op = batch_bytes};
    arm.max_ops_per_block = ops;
    arm.op = [op = std::move(op)](double*) { return op(); };
    return arm;
  };
  uint64_t position = 0, raw_at = 0, unsynced = 0, synced = uint64_t{1} << 40;
  Arm put = arm_of("put", [&] { return objects.Put(bytes.span()); });
  Arm append = arm_of("append", [&]() -> Status {
    CAIRN_RETURN_IF_ERROR(AppendRows(branch, bytes.span(), position));
    position += batch_bytes / kPageBytes;
    return Status::Ok();
  });
  Arm raw = arm_of("raw write", [&] {
    const uint64_t at = raw_at;
    raw_at = (raw_at + batch_bytes) % raw_file->bytes();
    return raw_file->WriteDurable(RawMethod::kWriteSync, at, bytes.span());
  });
  const auto put_files = [&](uint64_t* next, bool sync) -> Status {
    for (uint64_t i = 0; i < kBatch; ++i) {
      CAIRN_RETURN_IF_ERROR(
          files.Put(KeyAt((*next)++), bytes.span().subspan(i * object_bytes, object_bytes), sync));
    }
    return sync ? files.SyncNames() : Status::Ok();
  };
  Arm file_a_key = arm_of("files", [&] { return put_files(&unsynced, false); });
  Arm file_synced = arm_of("files, synced", [&] { return put_files(&synced, true); });
  CAIRN_RETURN_IF_ERROR(
      RunInterleaved(config, "objects: put", {&put, &append, &raw, &file_a_key, &file_synced}));
  CAIRN_RETURN_IF_ERROR(rows.Close());

  CAIRN_RETURN_IF_ERROR(objects.store().Compact());
  sync();
  Arm get =
      arm_of("get", [&] { return objects.Get(random() % (objects.count() / kBatch) * kBatch); });
  get.before_block = [&] { return objects.Reopen(report); };
  Arm raw_read = arm_of("raw read", [&] {
    return raw_file->Read(random() % (raw_file->bytes() / batch_bytes) * batch_bytes, bytes.span());
  });
  AlignedBuffer into = AlignedBuffer::TryAllocate(Allocator::Default(), batch_bytes, 4096);
  if (into.empty()) return Status(StatusCode::kOutOfMemory, "memory of a batch");
  Arm read_files = arm_of("files read", [&]() -> Status {
    const uint64_t first = random() % (unsynced / kBatch) * kBatch;
    for (uint64_t i = 0; i < kBatch; ++i) {
      CAIRN_RETURN_IF_ERROR(
          files.Get(KeyAt(first + i), into.span().subspan(i * object_bytes, object_bytes)));
    }
    return Status::Ok();
  });
  read_files.before_block = [&] {
    DropFileCaches(files.directory());
    return Status::Ok();
  };
  // What is read is what was put, which the raw reads then write over.
  CAIRN_RETURN_IF_ERROR(objects.Get(0));
  if (!objects.GotIs(bytes.span())) {
    return Status(StatusCode::kCorruption, "objects differ from what was put");
  }
  CAIRN_RETURN_IF_ERROR(RunInterleaved(config, "objects: get", {&get, &raw_read, &read_files}));
  CAIRN_RETURN_IF_ERROR(objects.store().Close());

  report->Value("object_kib", static_cast<double>(object_bytes) / 1024, "of each of 64 in a batch");
  const std::pair<const char*, const Arm*> arms[] = {{"put", &put},
                                                     {"append", &append},
                                                     {"raw_write", &raw},
                                                     {"files", &file_a_key},
                                                     {"files_synced", &file_synced},
                                                     {"get", &get},
                                                     {"raw_read", &raw_read},
                                                     {"files_read", &read_files}};
  for (const auto& [name, arm] : arms) {
    report->Value(std::string(name) + "_p50_us", arm->p50_us(), "one batch");
    report->Value(std::string(name) + "_gb_per_s", arm->gb_per_s(), "10^9 bytes a second");
  }
  report->AddRatio("put_to_raw", RatioOfBytes(put, raw), "at kPower; higher is better");
  report->AddRatio("put_to_append", RatioOfBytes(put, append), "of the same bytes to a branch");
  report->AddRatio("put_to_files", RatioOfBytes(put, file_a_key), "which no crash spares");
  report->AddRatio("put_to_files_synced", RatioOfBytes(put, file_synced), "equal durability");
  report->AddRatio("get_to_raw", RatioOfBytes(get, raw_read),
                   "one read of as many bytes, in order");
  report->AddRatio("get_to_files", RatioOfBytes(get, read_files), "higher is better");
  return Status::Ok();
}

// Keys that are there and keys that are not, by turns.
double AskUs(const std::function<bool(std::span<const std::string_view>)>& ask, uint64_t there,
             std::mt19937_64* random) {
  std::vector<std::string> keys;
  for (uint64_t i = 0; i < kAsked; ++i) {
    const uint64_t one = (*random)() % there;
    keys.push_back(KeyAt(i % 2 == 0 ? one : (uint64_t{1} << 50) + one));
  }
  const std::vector<std::string_view> views(keys.begin(), keys.end());
  const double begin = NowUs();
  CAIRN_CHECK(ask(views));
  return NowUs() - begin;
}

Status MeasureExists(const Config& config, const std::string& scratch, Report* report) {
  const std::string path = scratch + "/many";
  Options options;
  options.segment_bytes = config.segment_bytes;
  std::mt19937_64 random(2);
  const uint64_t count = std::max(config.branches, kAsked);
  {
    CAIRN_ASSIGN_OR_RETURN(Store store, OpenStore(path, options, report));
    Objects objects(store);
    CAIRN_ASSIGN_OR_RETURN(const ObjectClassId id,
                           objects.RegisterClass({.name = "small", .page_bytes = 64}));
    const std::vector<std::byte> value(64);
    const double begin = NowUs();
    Progress progress("objects: " + std::to_string(count) + " small ones", 100);
    for (uint64_t first = 0; first < count; first += kAsked) {
      if (Interrupted()) return Status(StatusCode::kCancelled, "interrupted");
      const auto keys = KeysFrom(first, std::min(kAsked, count - first));
      std::vector<ObjectPut> puts;
      for (const std::string& key : keys) puts.push_back({.key = key, .value = value});
      CAIRN_RETURN_IF_ERROR(
          objects.PutBatch(puts, {.object_class = id, .durability = Durability::kMemory}).status());
      if (first / kAsked % std::max<uint64_t>(1, count / kAsked / 100) == 0) progress.Step();
    }
    report->Value("put_small_us", (NowUs() - begin) / static_cast<double>(count),
                  "an object of 64 bytes at kMemory, 1000 together");
    CAIRN_RETURN_IF_ERROR(store.Close());
  }
  const double opening = NowUs();
  CAIRN_ASSIGN_OR_RETURN(Store store, OpenStore(path, options, report));
  const double opened = NowUs();
  Objects objects(store);
  const auto ask = [&](std::span<const std::string_view> keys) {
    const auto found = objects.Exists(keys);
    return found.ok() && found->count == kAsked / 2;
  };
  const double first_us = AskUs(ask, count, &random);
  while (store.Metrics().object_directory_whole == 0) {
    if (Interrupted()) return Status(StatusCode::kCancelled, "interrupted");
    usleep(1000);
  }
  const double filled = NowUs();
  std::vector<double> us;
  for (int i = 0; i < kLooks; ++i) us.push_back(AskUs(ask, count, &random));
  const StoreMetrics metrics = store.Metrics();
  CAIRN_RETURN_IF_ERROR(store.Close());
  report->Value("objects", static_cast<double>(count), "in the directory");
  report->Value("open_ms", (opened - opening) / 1e3, "opening their store");
  report->Value("filled_ms", (filled - opened) / 1e3, "until the directory knows them all");
  report->Value("exists_1000_first_us", first_us, "of 1000 keys, half of them there, before that");
  report->Value("exists_1000_p50_us", Median(us), "the same behind that");
  report->Value("exists_1000_p99_us", Quantile(us, 0.99), "its slow end");
  report->Value("directory_mib", static_cast<double>(metrics.object_directory_bytes) / (1 << 20),
                "memory of the directory");
  return Status::Ok();
}

}  // namespace

Status RunObjects(const Config& config, const std::string& scratch, Report* report) {
  if (config.object_bytes % kPageBytes != 0) {
    return Status(StatusCode::kInvalidArgument, "--object-bytes is no multiple of 4096");
  }
  CAIRN_ASSIGN_OR_RETURN(const Files files, Files::Create(scratch + "/files"));
  CAIRN_RETURN_IF_ERROR(MeasureBatches(config, scratch, files, report));
  std::mt19937_64 random(3);
  std::vector<double> us;
  const auto ask = [&](std::span<const std::string_view> keys) {
    return std::count_if(keys.begin(), keys.end(), [&](std::string_view key) {
             return files.Has(std::string(key));
           }) == static_cast<int64_t>(kAsked / 2);
  };
  for (int i = 0; i < kLooks; ++i) us.push_back(AskUs(ask, kBatch, &random));
  report->Value("files_exist_1000_p50_us", Median(us), "access() of 1000 paths, all in memory");
  return MeasureExists(config, scratch, report);
}

}  // namespace cairn::bench
