// SPDX-License-Identifier: Apache-2.0
//
// A file system in memory that behaves like a disk with a volatile cache, for tests that cut the
// power. A crash keeps what was made durable, and of the rest whatever the test chooses:
//
//   writes          a kDurableWrite makes its own bytes durable; Sync all that completed before on
//                   that file. Others are lost, kept, or torn at sectors of 512 bytes,
//                   independently, so they are reordered as well. One in flight at the crash is
//                   like an unsynced one, whatever its kind.
//   length, blocks  Truncate and Allocate are changes like a write and ride with the same syncs.
//   names           Create, Rename, Link and Remove are durable after SyncDirectory of the parent
//                   (for a rename that of the new name). Until then each is lost or kept
//                   independently, or, by choice, an ordered prefix of them is kept. A rename is
//                   atomic. A file whose name is lost is lost with all its synced content.
//
// With a SimScheduler, transfers take virtual time and complete out of order, and every call may
// switch fibers. Without one, calls execute at once and queues complete in order; that is the quick
// way to recover thousands of crash states.
//
// One thread only. Files, locks and queues are gone before their disk.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/core/seeded_random.h"
#include "base/io/world.h"
#include "sim/inode.h"
#include "sim/scheduler.h"

namespace cairn::io {

enum class SimOp : uint8_t {
  kOpen,  // Opens an existing file; making one is kCreate.
  kStat,  // Looks at a file, a directory, an open file or the volume; each must exist.
  kList,
  kRead,  // The last that does not change the world.
  kWrite,
  kDurableWrite,
  kSync,
  kTruncate,
  kAllocate,
  kCreate,
  kRename,
  kLink,
  kRemove,
  kCreateDirectory,
  kSyncDirectory,
};
const char* SimOpName(SimOp op);

struct SimOperation {
  // Counts the operations that change the world; any other has the number of the next one.
  uint64_t index = 0;
  SimOp op = SimOp::kRead;
  std::string path;
  uint64_t offset = 0;
  uint64_t length = 0;

  bool changes_world() const { return op > SimOp::kRead; }
  std::string ToString() const;  // "write store/log/7 offset 4096 length 512"
};

// The target of a misdirected write.
struct SimPlace {
  std::string path;
  uint64_t offset = 0;
};

// Makes operations fail. A fault strikes once, or with `persistent` every time.
struct SimFault {
  // Selects the operation. Null: the world-changing operation `at_index` (persistent: and later
  // ones).
  std::function<bool(const SimOperation&)> when;
  uint64_t at_index = 0;
  // The errno, or 0 for a short transfer only. The backend retries EINTR and EAGAIN; each attempt
  // is an operation of its own, as is the rest of a short transfer.
  int error = 0;
  uint64_t transferred = 0;  // Transfers: bytes transferred before it.
  // Syncs: what the sync should have made durable never will be, but it can still be read. The next
  // sync succeeds (as on Linux).
  bool loses_unsynced = false;
  // With a scheduler: the operation succeeds, but takes this much longer. Not with an error.
  uint64_t delay_ns = 0;
  // Writes: acknowledged, and not done. The old content stays; where the file grows there are
  // zeros. The other fields, except the first two and the last, are ignored.
  bool lost = false;
  std::optional<SimPlace> misdirected{};  // Done there instead, as far as that file reaches.
  bool persistent = false;

  bool lies() const { return lost || misdirected.has_value(); }
};

struct SimLatency {
  uint64_t min_ns = 0;
  uint64_t max_ns = 0;
};

struct SimDiskOptions {
  uint64_t seed = 1;
  uint64_t capacity_bytes = UINT64_MAX;  // kNoSpace beyond.
  // A write needs free blocks for all of its bytes, also where the file has blocks; those that it
  // replaces are free again behind it. Volume() names another kind of volume.
  bool copies_on_write = false;
  SimLatency read{10'000, 100'000};
  SimLatency write{5'000, 50'000};
  SimLatency durable{20'000, 200'000};  // Sync, durable write, SyncDirectory.
  SimLatency metadata{1'000, 10'000};
};

// The fate of each change that is not durable in a crash.
struct CrashChoice {
  // Drawn from the seed.
  uint64_t seed = 0;
  double lost = 1.0 / 3;        // Probabilities; the rest is kept whole.
  double torn = 1.0 / 3;        // A change of names is never torn; it is lost instead.
  bool names_in_order = false;  // An ordered prefix of name changes survives.
  // Or bit i: the i-th of the unsynced writes, oldest first, is kept; the others are lost.
  std::optional<uint64_t> kept_mask;

  static CrashChoice LoseAll() { return {.lost = 1, .torn = 0, .kept_mask = {}}; }
  static CrashChoice KeepAll() { return {.lost = 0, .torn = 0, .kept_mask = {}}; }
  static CrashChoice Seeded(uint64_t seed) { return {.seed = seed, .kept_mask = {}}; }
  static CrashChoice Mask(uint64_t mask) { return {.kept_mask = mask}; }
};

class SimDisk final : public FileSystem {
 public:
  explicit SimDisk(SimDiskOptions options = {}, SimScheduler* scheduler = nullptr);
  ~SimDisk() override;

  std::string_view name() const override { return "simulated"; }
  Result<std::unique_ptr<File>> Open(const std::string& path, const OpenOptions& options) override;
  Result<FileInfo> Info(const std::string& path) override;
  Status Rename(const std::string& from, const std::string& to) override;
  Result<bool> Link(const std::string& from, const std::string& to) override;
  Status Remove(const std::string& path) override;
  Status CreateDirectory(const std::string& path) override;
  Status SyncDirectory(const std::string& path) override;
  Result<std::vector<std::string>> List(const std::string& path) override;
  Result<std::unique_ptr<FileLock>> Lock(const std::string& path) override;
  Result<bool> IsLocked(const std::string& path) override;
  bool Leads(const std::string& path, const SimInode& inode) const;  // `path` to that inode.
  Result<VolumeInfo> Volume(const std::string& path) override;
  Result<DiskSpace> Space(const std::string& path) override;
  uint64_t OpenFilesMax() override { return UINT64_MAX; }
  std::unique_ptr<Queue> NewQueue(size_t depth) override;

  // --- The crash ---
  // Changes, of content and of names, that a crash now may lose. A file or directory that nothing
  // reaches any more, nor could after a crash, does not count.
  size_t unsynced_writes() const;
  // The disk as it is found after a crash at this moment; it has no locks, faults or hooks. This
  // disk goes on undisturbed. Cheap: pages are shared.
  std::unique_ptr<SimDisk> CrashClone(const CrashChoice& choice,
                                      SimScheduler* scheduler = nullptr) const;
  // The disk as the next process finds it when this one is killed now: everything that was given to
  // the system survives, also requests in flight, and unsynced changes can still be lost.
  std::unique_ptr<SimDisk> KillClone(SimScheduler* scheduler = nullptr) const;
  // A key of the disk that a crash now would leave, comparable between moments: equal keys mean
  // equal disks. Makes no disk.
  uint64_t CrashKey(const CrashChoice& choice) const;

  // --- Watching ---
  // Called before each operation that changes the world, before any of its effects. The hook may
  // call CrashClone and AddFault.
  using Hook = std::function<void(const SimOperation&)>;
  void set_on_operation(Hook hook) { hook_ = std::move(hook); }
  uint64_t operations() const { return next_index_; }  // World-changing ones so far.
  // One line for each operation, with a hash of the bytes written or read, its start and its
  // outcome.
  void set_trace(bool on) { tracing_ = on; }
  const std::vector<std::string>& trace() const { return trace_; }

  // --- Faults ---
  void AddFault(SimFault fault) { faults_.push_back(std::move(fault)); }
  void ClearFaults() { faults_.clear(); }
  uint64_t faults_struck() const { return faults_struck_; }
  // Syncs and durable writes are acknowledged and do nothing: a disk that lies. To prove that a
  // test notices.
  void set_drop_syncs(bool on) { drop_syncs_ = on; }

  // --- The medium itself: no operation, no hook, visible to users and durable at once. Where
  // unsynced changes cover the same bytes, a crash may restore those instead. ---
  Status FlipBit(const std::string& path, uint64_t offset, unsigned bit);
  Status TruncateRaw(const std::string& path, uint64_t bytes);
  Status WriteRaw(const std::string& path, uint64_t offset, std::span<const std::byte> bytes);
  // The existing part of [offset, offset + bytes).
  Result<std::vector<std::byte>> ReadRaw(const std::string& path, uint64_t offset = 0,
                                         uint64_t bytes = UINT64_MAX) const;
  std::vector<std::string> Files() const;  // Paths of all files, sorted, without a leading "/".
  uint64_t used_bytes() const { return *used_bytes_; }

 private:
  friend class SimFile;
  friend class SimQueue;
  class Crash;
  class Kill;

  // A transfer or sync between its start and its completion.
  struct Pending {
    Request* request = nullptr;
    std::shared_ptr<SimInode> inode;
    uint64_t ready_ns = 0;
    std::vector<uint64_t> change_ids;
    uint64_t completed_before = 0;
    bool loses_unsynced = false;
  };
  Pending Start(Request& request);
  void Complete(Pending& pending);
  void StartWrite(Request& request, Pending& pending);
  void StartRead(Request& request);
  void Misdirect(const SimPlace& place, std::span<const std::byte> bytes);
  void StartSync(Request& request, Pending& pending);
  Status Resize(const std::string& path, SimInode& inode, SimOp op, uint64_t bytes);

  // Numbers, announces and traces an operation; returns the fault that strikes it, if any.
  std::optional<SimFault> Announce(SimOp op, const std::string& path, uint64_t offset,
                                   uint64_t length, std::span<const std::byte> bytes);
  // The same for operations that succeed or fail as a whole; retries EINTR and EAGAIN.
  int AnnounceWhole(SimOp op, const std::string& path, uint64_t length = 0);
  int AnnounceLook(SimOp op, const std::string& path);
  // Traces the outcome of the operation announced last.
  void TraceOutcome(int error, uint64_t transferred = 0);
  void ApplyAndRecord(SimInode& inode, SimChange change, Pending* pending);
  // Commits name changes first if necessary, as file systems do: removed files may come back until
  // then.
  bool HasRoom(uint64_t new_bytes);
  // The free bytes that a write needs.
  uint64_t NewBytes(const SimInode& inode, uint64_t offset, uint64_t length) const;
  void CommitNames(SimInode& directory);
  uint64_t Draw(const SimLatency& latency);
  void Delay(const SimLatency& latency);

  std::shared_ptr<SimInode> Find(const std::string& path) const;
  // The directory that holds the name, or an errno.
  std::shared_ptr<SimInode> FindParent(const std::string& path, int& error) const;
  std::shared_ptr<SimInode> NewInode(bool directory);
  void ChangeEntries(const std::shared_ptr<SimInode>& directory, SimEntryChange change);

  const SimDiskOptions options_;
  SimScheduler* const scheduler_;
  SeededRandom random_;
  std::shared_ptr<uint64_t> used_bytes_ = std::make_shared<uint64_t>(0);
  uint64_t next_inode_ = 0;
  uint64_t next_change_ = 0;
  uint64_t completions_ = 0;
  uint64_t next_index_ = 0;
  std::shared_ptr<SimInode> root_;
  Hook hook_;
  bool tracing_ = false;
  bool drop_syncs_ = false;
  std::vector<std::string> trace_;
  std::vector<SimFault> faults_;
  uint64_t faults_struck_ = 0;
  uint64_t delay_ns_ = 0;  // How long the operation announced last takes.
};

}  // namespace cairn::io
