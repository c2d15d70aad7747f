// SPDX-License-Identifier: Apache-2.0
//
// objects: pages under keys, put and read in batches, beside the same bytes appended to a branch,
// raw, and one file per key (object_bench.h); and whether keys exist, by the store and by the file
// system.

#include <unistd.h>

#include <algorithm>
#include <random>

#include "base/core/aligned_buffer.h"
#include "base/core/check.h"
#include "cairn/objects.h"
#include "tools/bench/fixture.h"
#include "tools/bench/machine.h"
#include "tools/bench/object_bench.h"
#include "tools/bench/raw.h"

namespace cairn::bench {
namespace {

constexpr uint64_t kBatch = 64;
constexpr uint32_t kPageBytes = 4096;

// The store's side of the batches.
class ObjectSide {
 public:
  ObjectSide(const Config& config, std::string path, uint64_t object_bytes)
      : path_(std::move(path)), object_bytes_(object_bytes), into_(kBatch * object_bytes) {
    options_.segment_bytes = config.segment_bytes;
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
  // Checks that gets return what was put; the raw reads overwrite it later.
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
