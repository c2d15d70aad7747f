// SPDX-License-Identifier: Apache-2.0
//
// Restores into a device, out of tables on the disk and out of the store's memory, beside the bus,
// raw reads of the disk, and restores into host memory. The first into the device is compared with
// its source, byte by byte.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/core/check.h"
#include "tools/bench/fixture.h"
#include "tools/bench/gpu_bench.h"
#include "tools/bench/machine.h"
#include "tools/bench/raw.h"

namespace cairn::bench {
namespace {

constexpr uint64_t kTokenBytes = 128 << 10;
constexpr uint64_t kTokensPerAppend = 16;

// Device memory laid out as a pool is, and views on it.
class DevicePool {
 public:
  DevicePool(const KvPool& pool, std::byte* memory, uint32_t ordinal)
      : pool_(pool), memory_(memory), ordinal_(ordinal), cursor_(pool, 0) {}

  const KvView& All() {
    const KvView& host = cursor_.At(0, pool_.tokens());
    const GroupView& group = host.groups[0];
    bases_.clear();
    planes_.assign(group.planes.begin(), group.planes.end());
    for (const PlaneView& plane : group.planes) {
      std::vector<std::byte*>& bases = bases_.emplace_back();
      for (std::byte* const base : plane.layer_bases) {
        bases.push_back(memory_ + (base - pool_.bytes().data()));
      }
    }
    for (size_t i = 0; i < planes_.size(); ++i) planes_[i].layer_bases = bases_[i];
    group_ = group;
    group_.planes = planes_;
    view_ = {.groups = {&group_, 1}, .memory = MemoryKind::kCuda, .device = ordinal_};
    return view_;
  }

 private:
  const KvPool& pool_;
  std::byte* const memory_;
  const uint32_t ordinal_;
  KvCursor cursor_;
  std::vector<std::vector<std::byte*>> bases_;
  std::vector<PlaneView> planes_;
  GroupView group_;
  KvView view_;
};

// A sealed session, its source, and memory of both kinds to restore it to.
class Session {
 public:
  Session(GpuBench& bench, const ModelSpec& model, uint64_t tokens, const std::string& path)
      : bench_(bench),
        path_(path),
        source_(model, Layout::kNhd, tokens, /*seed=*/1),
        host_(model, Layout::kNhd, tokens, /*seed=*/1),
        host_cursor_(host_, 0),
        words_(model.groups[0].layers) {
    options_.segment_bytes = bench.config().segment_bytes;
    options_.max_memory_bytes = 4 * source_.bytes().size() + (1ull << 30);
    options_.gpus = {bench.gpu()};
  }

  uint64_t bytes() const { return source_.bytes().size(); }
  double stored_share() const { return stored_share_; }
  double hot_share() const { return hot_share_; }  // Tells of the last restore.
  std::byte* memory() const { return memory_; }

  Status Write() {
    CAIRN_ASSIGN_OR_RETURN(memory_, bench_.Allocate(gpu::Memory::kDevice, bytes()));
    device_ = std::make_unique<DevicePool>(source_, memory_, bench_.gpu().ordinal());
    CAIRN_ASSIGN_OR_RETURN(store_, OpenStore(path_, options_, bench_.report()));
    CAIRN_ASSIGN_OR_RETURN(const ModelId model, store_.RegisterModel(source_.model()));
    CAIRN_ASSIGN_OR_RETURN(auto writer,
                           Writer::Create(store_, model, &source_, 0, kTokensPerAppend));
    while (writer->length() < source_.tokens()) {
      if (Interrupted()) return Status(StatusCode::kCancelled, "interrupted");
      CAIRN_RETURN_IF_ERROR(writer->Prepare());
      CAIRN_RETURN_IF_ERROR(writer->AppendSync(Durability::kProcess));
    }
    id_ = writer->branch().id();
    CAIRN_RETURN_IF_ERROR(store_.Compact());
    const StoreMetrics metrics = store_.Metrics();
    stored_share_ =
        static_cast<double>(metrics.table_bytes) / static_cast<double>(metrics.raw_bytes);
    return Status::Ok();
  }

  // Nothing of it is in memory.
  Status Reopen() {
    branch_ = {};
    CAIRN_RETURN_IF_ERROR(store_.Close());
    DropFileCaches(path_);
    CAIRN_ASSIGN_OR_RETURN(store_, OpenStore(path_, options_, bench_.report()));
    CAIRN_RETURN_IF_ERROR(WaitForPool(store_, 0));
    CAIRN_ASSIGN_OR_RETURN(branch_, store_.GetBranch(id_));
    return Status::Ok();
  }

  Status RestoreToHost() {
    RestoreRequest request;
    request.into = &host_cursor_.At(0, host_.tokens());
    CAIRN_ASSIGN_OR_RETURN(const RestoreResult result, branch_.Restore(request));
    CAIRN_CHECK(result.bytes == bytes());
    return Status::Ok();
  }

  // `first_us`: until the first layer was complete.
  Status RestoreToDevice(double* first_us) {
    const double begin = NowUs();
    LayerProgress progress{words_};
    RestoreRequest request;
    request.into = &device_->All();
    CAIRN_ASSIGN_OR_RETURN(Ticket ticket, branch_.RestoreAsync(request, &progress));
    const Status first = ticket.WaitForLayer(0, kLayerComplete);
    *first_us += NowUs() - begin;
    CAIRN_RETURN_IF_ERROR(ticket.Wait());
    CAIRN_RETURN_IF_ERROR(first);
    CAIRN_CHECK(ticket.restored()->bytes == bytes());
    hot_share_ = static_cast<double>(ticket.restored()->hot_bytes) / static_cast<double>(bytes());
    return Status::Ok();
  }

  // `cancel_us`: of the call that ends a restore under way.
  Status Cancel(double* cancel_us) {
    LayerProgress progress{words_};
    RestoreRequest request;
    request.into = &device_->All();
    CAIRN_ASSIGN_OR_RETURN(Ticket ticket, branch_.RestoreAsync(request, &progress));
    CAIRN_RETURN_IF_ERROR(ticket.WaitForLayer(0, kLayerEnqueued));
    const double begin = NowUs();
    const Status status = ticket.Cancel();
    *cancel_us += NowUs() - begin;
    return status.code() == StatusCode::kCancelled ? Status::Ok() : status;
  }

  Status Compare() {
    std::vector<std::byte> got(bytes());
    CAIRN_RETURN_IF_ERROR(bench_.gpu().CopyOut(got.data(), memory_, bytes()));
    if (std::memcmp(got.data(), source_.bytes().data(), bytes()) == 0) return Status::Ok();
    return Status(StatusCode::kCorruption, "what was restored differs from what was appended");
  }

 private:
  GpuBench& bench_;
  const std::string path_;
  KvPool source_, host_;  // Alike, so that what is on the device is compared as it is.
  KvCursor host_cursor_;
  std::vector<std::atomic<uint32_t>> words_;
  Options options_;
  std::byte* memory_ = nullptr;
  std::unique_ptr<DevicePool> device_;
  Store store_;
  Branch branch_;
  BranchId id_{};
  double stored_share_ = 1, hot_share_ = 0;
};

// Until the first layer is complete, as a part of the whole.
Ratio FirstLayerShare(const Arm& arm) {
  Ratio ratio{.value = arm.p50_inner_us() / arm.p50_us(), .min = 1, .max = 0};
  for (const Arm::Block& block : arm.blocks) {
    ratio.min = std::min(ratio.min, block.p50_inner_us / block.p50_us);
    ratio.max = std::max(ratio.max, block.p50_inner_us / block.p50_us);
  }
  return ratio;
}

void TellRestore(GpuBench& bench, const std::string& name, const Arm& arm) {
  bench.Value(name + "_gb_per_s", arm.gb_per_s(), "KV restored into the device");
  bench.Value(name + "_ms", arm.p50_us() * 1e-3, "a whole session");
  bench.Value(name + "_cpu_s_per_gb", arm.cpu_s_per_gb(), "CPU of the process");
  bench.AddRatio(name + "_first_layer_share", FirstLayerShare(arm),
                 "until the first of 32 layers is complete, of the whole; lower is better");
}

Status FromDisk(GpuBench& bench, Session& session, const std::string& scratch) {
  CAIRN_ASSIGN_OR_RETURN(const auto file, RawFile::Create(scratch + "/raw", session.bytes()));
  CAIRN_ASSIGN_OR_RETURN(std::byte* const room,
                         bench.Allocate(gpu::Memory::kPinned, session.bytes()));
  const auto arm = [&](const char* name) {
    return Arm{.name = name, .bytes_per_op = session.bytes(), .max_ops_per_block = 1};
  };
  std::vector<Arm> arms = {arm("disk to device"), arm("disk to host"), arm("raw read")};
  arms[0].before_block = arms[1].before_block = [&] { return session.Reopen(); };
  arms[0].op = [&](double* first_us) { return session.RestoreToDevice(first_us); };
  arms[1].op = [&](double*) { return session.RestoreToHost(); };
  arms[2].op = [&](double*) { return file->Read(0, {room, session.bytes()}); };
  CAIRN_RETURN_IF_ERROR(bench.Run("restores from disk", &arms));
  TellRestore(bench, "restore_disk", arms[0]);
  bench.Value("restore_disk_host_gb_per_s", arms[1].gb_per_s(), "the same into host memory");
  bench.Value("raw_read_gb_per_s", arms[2].gb_per_s(), "the disk, into pinned memory");
  Ratio to_raw = RatioOfBytes(arms[0], arms[2]);
  for (double* const value : {&to_raw.value, &to_raw.min, &to_raw.max}) {
    *value *= session.stored_share();
  }
  bench.AddRatio("restore_disk_to_raw_read", to_raw, "packed bytes; higher is better");
  bench.AddRatio("restore_disk_to_host_restore", RatioOfBytes(arms[0], arms[1]),
                 "higher is better");
  return Status::Ok();
}

Status FromMemory(GpuBench& bench, Session& session) {
  CAIRN_ASSIGN_OR_RETURN(std::byte* const pinned,
                         bench.Allocate(gpu::Memory::kPinned, session.bytes()));
  CAIRN_RETURN_IF_ERROR(session.Reopen());
  // A page is kept for good when it was asked for twice.
  for (int i = 0; i < 2; ++i) CAIRN_RETURN_IF_ERROR(session.RestoreToHost());
  std::vector<Arm> arms;
  arms.push_back(bench.CopyArm("bus", session.memory(), pinned, session.bytes(), session.bytes()));
  arms.push_back({.name = "memory to device", .bytes_per_op = session.bytes()});
  arms.push_back({.name = "memory to host", .bytes_per_op = session.bytes()});
  arms.push_back({.name = "cancel"});
  arms[1].op = [&](double* first_us) { return session.RestoreToDevice(first_us); };
  arms[2].op = [&](double*) { return session.RestoreToHost(); };
  arms[3].op = [&](double* cancel_us) { return session.Cancel(cancel_us); };
  CAIRN_RETURN_IF_ERROR(bench.Run("restores from memory", &arms));
  TellRestore(bench, "restore_memory", arms[1]);
  bench.Value("restore_memory_hot_share", session.hot_share(), "served from the store's memory");
  bench.Value("restore_memory_host_gb_per_s", arms[2].gb_per_s(), "the same into host memory");
  bench.AddRatio("restore_memory_to_bus", RatioOfBytes(arms[1], arms[0]),
                 "to one copy of as many bytes; higher is better");
  bench.Value("cancel_us", arms[3].p50_inner_us(), "of Ticket::Cancel, a layer being enqueued");
  bench.Value("cancel_longest_us", Quantile(arms[3].inner_us, 1), "the longest of these");
  return Status::Ok();
}

}  // namespace

Status BenchGpuRestores(GpuBench& bench, const std::string& scratch) {
  CAIRN_ASSIGN_OR_RETURN(const ModelSpec model, ModelOfTokenBytes(kTokenBytes));
  const uint64_t appends =
      std::max<uint64_t>(1, bench.sizes().session_bytes / kTokenBytes / kTokensPerAppend);
  Session session(bench, model, appends * kTokensPerAppend, scratch + "/store");
  CAIRN_RETURN_IF_ERROR(session.Write());
  bench.Value("session_mib", static_cast<double>(session.bytes() >> 20), "KV restored");
  bench.Value("stored_share", session.stored_share(), "table files to KV and token ids");
  double first_us = 0;
  CAIRN_RETURN_IF_ERROR(session.Reopen());
  CAIRN_RETURN_IF_ERROR(session.RestoreToDevice(&first_us));
  CAIRN_RETURN_IF_ERROR(session.Compare());
  CAIRN_RETURN_IF_ERROR(FromDisk(bench, session, scratch));
  return FromMemory(bench, session);
}

}  // namespace cairn::bench
