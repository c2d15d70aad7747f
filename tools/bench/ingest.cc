// SPDX-License-Identifier: Apache-2.0
//
// load ingest: what the way in costs, by the size of an append, until acknowledged and until
// quiet. Raw writes, LMDB and files beside it show what the device and others give, runs without a
// disk the store's own cost.

#include "tools/bench/ingest.h"

#include <algorithm>
#include <bit>
#include <filesystem>
#include <map>

#include "base/codec/kv_frame.h"
#include "base/core/check.h"
#include "tools/bench/peers/peer.h"
#include "tools/bench/raw_load.h"

namespace cairn::bench {
namespace {

// A run; and the one that outlasts the log: KV of a model by one thread.
constexpr uint64_t kRunBytes = 1ull << 30, kLongSize = 2 << 20, kLongLogs = 4;
constexpr double kRunSeconds = 4, kLongSeconds = 60;
constexpr uint64_t kUsedBytes = 1ull << 30;  // Blocks that raw writes use again.
// Chunks for what a run without a disk leaves: its log, and its tables.
constexpr uint64_t kMachineShare = 2;
// With --quick.
constexpr uint64_t kQuickBytes = 32 << 20, kQuickSize = 8 << 20;
constexpr double kQuickSeconds = 0.25;

class Ingest {
 public:
  Ingest(const Config& config, const std::string& scratch, Report* report)
      : config_(config), scratch_(scratch), report_(report) {}

  Status Go() {
    report_->Machine("codec_path", CodecPathName(BestCodecPath()));
    CAIRN_RETURN_IF_ERROR(CheckSizes());
    CAIRN_RETURN_IF_ERROR(MakePools());
    TellAbsentPeers();
    const bool on_disk = config_.ingest_arms != std::vector<std::string>{"no-disk"};
    Progress progress("ingest", sizes_.size() * ((on_disk ? config_.ingest_threads.size() : 0) +
                                                 (Has("no-disk") ? pools_.size() : 0)));
    for (const uint64_t size : sizes_) {
      if (!on_disk) break;
      for (const uint32_t threads : config_.ingest_threads) {
        IngestCell cell{.shape = ShapeOf(size, threads)};
        CAIRN_RETURN_IF_ERROR(RunOnDisk(&cell).WithContext(cell.shape.name()));
        ReportCell(cell, report_);
        progress.Step();
      }
    }
    if (!Has("no-disk")) return Status::Ok();
    machine_->Reserve(kMachineShare * ShapeOf(sizes_[0], 1).bytes_max);
    for (const uint64_t size : sizes_) {
      for (const auto& [kv, pool] : pools_) {
        CAIRN_RETURN_IF_ERROR(RunWithoutDisk(size, kv, pool));
        progress.Step();
      }
    }
    return Status::Ok();
  }

 private:
  bool Has(const std::string& arm) const {
    return std::find(config_.ingest_arms.begin(), config_.ingest_arms.end(), arm) !=
           config_.ingest_arms.end();
  }
  uint32_t rounds() const { return std::max(config_.load_rounds, 1u); }

  Status CheckSizes() {
    for (const uint64_t size : config_.ingest_sizes) {
      if (!std::has_single_bit(size)) {
        return Status(StatusCode::kInvalidArgument,
                      "--sizes " + std::to_string(size) + ": a power of two is needed");
      }
      if (!config_.quick || size <= kQuickSize) sizes_.push_back(size);
    }
    if (!sizes_.empty()) return Status::Ok();
    return Status(StatusCode::kInvalidArgument, "--quick: --sizes up to 8 MiB");
  }

  Status MakePools() {
    CAIRN_ASSIGN_OR_RETURN(const Layout layout, ParseLayout(config_.layout));
    const uint64_t largest = *std::max_element(sizes_.begin(), sizes_.end());
    const uint64_t bytes = std::max(config_.quick ? kQuickBytes : config_.source_bytes, largest);
    for (const std::string& kv : config_.ingest_kv) {
      const IngestKv kind = kv == "model" ? IngestKv::kModel : IngestKv::kRandom;
      CAIRN_ASSIGN_OR_RETURN(KvPool pool, MakeIngestPool(kind, layout, bytes));
      pools_.emplace(kv, std::move(pool));
    }
    return Status::Ok();
  }

  void TellAbsentPeers() {
    for (const PeerKind& kind : PeerKinds()) {
      if (kind.name == "lmdb" && kind.open == nullptr && Has("lmdb")) {
        report_->Text("lmdb_skipped", kind.why_absent, "so it has no figures here");
      }
    }
  }

  IngestShape ShapeOf(uint64_t size, uint32_t threads) const {
    IngestShape shape{.append_bytes = size, .threads = threads};
    shape.bytes_max = config_.quick ? kQuickBytes : kRunBytes;
    shape.seconds_max = config_.quick ? kQuickSeconds : kRunSeconds;
    if (config_.load_bytes != 0) shape.bytes_max = config_.load_bytes;
    if (config_.ingest_seconds != 0) shape.seconds_max = config_.ingest_seconds;
    return shape;
  }

  // What a store appends: the same, or more than its log and all caches hold.
  IngestShape StoreShapeOf(const IngestShape& shape, const std::string& kv) const {
    IngestShape own = shape;
    const bool is_long = shape.append_bytes == kLongSize && shape.threads == 1 && kv == "model";
    if (!is_long || config_.quick) return own;
    if (config_.load_bytes == 0) {
      std::error_code error;
      const uint64_t room = std::filesystem::space(scratch_, error).available / 2;
      own.bytes_max = std::max(kRunBytes, std::min(kLongLogs * Options().log_bytes_max, room));
    }
    if (config_.ingest_seconds == 0) own.seconds_max = kLongSeconds;
    return own;
  }

  // Raw writes and peers keep bytes as they are, so one kind of KV does for them.
  Status RunOnDisk(IngestCell* cell) {
    const IngestShape& shape = cell->shape;
    const KvPool& pool = pools_.begin()->second;
    std::unique_ptr<RawLoad> raw;
    if (Has("raw")) {
      const uint64_t used = std::min(shape.bytes_max, kUsedBytes) / shape.threads;
      CAIRN_ASSIGN_OR_RETURN(
          raw, RawLoad::Create(scratch_ + "/raw", pool, shape.threads, shape.tokens(), used));
      CAIRN_RETURN_IF_ERROR(raw->Choose(shape.NewWork()));
    }
    for (uint32_t round = 0; round < rounds(); ++round) {
      if (raw != nullptr) {
        CAIRN_RETURN_IF_ERROR(raw->WriteUsed(shape.NewWork(), &cell->raw_used));
        CAIRN_RETURN_IF_ERROR(raw->WriteFresh(shape.NewWork(), &cell->raw_fresh));
      }
      if (Has("cairn")) {
        for (const auto& [kv, kv_pool] : pools_) {
          StoreLoad* const load = kv == "model" ? &cell->model : &cell->random;
          CAIRN_RETURN_IF_ERROR(
              RunStore(scratch_ + "/store", kv_pool, StoreShapeOf(shape, kv), load, report_));
        }
      }
      if (Has("lmdb")) {
        CAIRN_RETURN_IF_ERROR(RunIngestPeer("lmdb", scratch_ + "/lmdb", pool, shape, &cell->lmdb));
      }
      if (Has("files")) {
        CAIRN_RETURN_IF_ERROR(
            RunIngestPeer("chunk_files", scratch_ + "/files", pool, shape, &cell->files));
      }
    }
    return Status::Ok();
  }

  Status RunWithoutDisk(uint64_t size, const std::string& kv, const KvPool& pool) {
    NoDiskCell cell;
    for (uint32_t threads = 1; threads <= 2; ++threads) {
      const IngestShape shape = ShapeOf(size, threads);
      cell.name = shape.name().substr(0, shape.name().find('_') + 1) + kv;
      for (uint32_t round = 0; round < rounds(); ++round) {
        CAIRN_RETURN_IF_ERROR(RunStoreWithoutDisk(machine_, io::NoDiskKeeps::kSmall, pool, shape,
                                                  &cell.acked[threads - 1]));
        CAIRN_RETURN_IF_ERROR(RunStoreWithoutDisk(machine_, io::NoDiskKeeps::kAll, pool, shape,
                                                  &cell.settled[threads - 1]));
      }
    }
    ReportNoDisk(cell, report_);
    return Status::Ok();
  }

  const Config& config_;
  const std::string scratch_;
  Report* const report_;
  std::vector<uint64_t> sizes_;
  std::map<std::string, KvPool> pools_;  // By kind.
  const std::shared_ptr<io::NoDisk> machine_ = std::make_shared<io::NoDisk>();
};

}  // namespace

Status RunIngest(const Config& config, const std::string& scratch, Report* report) {
  return Ingest(config, scratch, report).Go();
}

}  // namespace cairn::bench
