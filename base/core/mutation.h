// SPDX-License-Identifier: Apache-2.0
//
// Names steps without which a promise breaks, for testing the tests. A build with CAIRN_MUTATIONS
// (cmake --preset mutations) leaves out the step that the environment variable CAIRN_MUTATION
// names, wherever its code runs, and tools/mutations sees which test notices. In every other build
// CAIRN_KEPT is `true`.
//
//   if (CAIRN_KEPT(kSyncSnapshot)) CAIRN_RETURN_IF_ERROR(file_->Sync());
//   if (CAIRN_KEPT(kHashOfStrip) && hash != entry.hash) return Damaged(...);
//
// A new step: a row below, CAIRN_KEPT at the step, and a test that fails without it. Then
// `tools/mutations --record NAME` shows which test that is.
#pragma once

// X(name, kind, what happens without it)
#define CAIRN_EACH_MUTATION(X)                                                                   \
  X(kCanary, "canary", "nothing is appended: if no test notices, this proves nothing")           \
  X(kSyncGroup, "fsync", "a durable append is acknowledged before its group is synced")          \
  X(kSyncLater, "fsync", "a Flush of what was written before does not sync it")                  \
  X(kSyncPredecessor, "fsync", "a log segment is followed by another without being synced")      \
  X(kSyncNewSegment, "fsync", "a new segment is used before its length is on the medium")        \
  X(kSyncRecovered, "fsync", "a new segment is built on a tail that was read, but not synced")   \
  X(kWriteUnproven, "fsync", "what a failed sync left unwritten is built on as it is read")      \
  X(kSyncSnapshot, "fsync", "a snapshot table gets its name before its content is synced")       \
  X(kSyncIndex, "fsync", "an index table gets its name before its content is synced")            \
  X(kSyncSmallFile, "fsync", "MANIFEST gets its name before its content is synced")              \
  X(kSyncLogCopy, "fsync", "a checkpoint's copy of the log is not synced")                       \
  X(kSyncDirectorySegment, "directory sync", "a segment is used before its name is durable")     \
  X(kSyncDirectoryRecovered, "directory sync", "names in the log are built on before durable")   \
  X(kSyncDirectorySnapshot, "directory sync", "a snapshot table's name may be lost")             \
  X(kSyncDirectoryIndex, "directory sync", "an index table's name may be lost")                  \
  X(kSyncDirectorySmallFile, "directory sync", "the name of a new MANIFEST may be lost")         \
  X(kSyncDirectoryCreate, "directory sync", "the name of a new store may be lost")               \
  X(kSyncDirectoryLogCopy, "directory sync", "names of a checkpoint's log may be lost")          \
  X(kSyncDirectoryTableCopy, "directory sync", "names of a checkpoint's tables may be lost")     \
  X(kHashOfSegmentHeader, "checksum", "the header of a log segment is taken as it is")           \
  X(kHashOfGroup, "checksum", "the header of a group of the log is taken as it is")              \
  X(kHashOfRecords, "checksum", "a group is taken without the records that it names")            \
  X(kHashOfRecord, "checksum", "the header of a record is taken as it is")                       \
  X(kHashOfStrip, "checksum", "the payload of a record is taken as it is")                       \
  X(kHashOfFooter, "checksum", "the footer of a segment is taken as it is")                      \
  X(kHashOfFooterEntries, "checksum", "what a segment's footer lists is taken as it is")         \
  X(kHashOfBlock, "checksum", "blocks of tables are taken as they are")                          \
  X(kHashOfFragments, "checksum", "a table's list of fragments is taken as it is")               \
  X(kHashOfFrames, "checksum", "a fragment's list of frames is taken as it is")                  \
  X(kHashOfFrame, "checksum", "a frame is taken as it is")                                       \
  X(kHashOfManifest, "checksum", "MANIFEST is taken as it is")                                   \
  X(kHashOfHint, "checksum", "HINT is taken as it is")                                           \
  X(kFillsBeforeWrite, "ordering", "a group is written while its payload is still copied")       \
  X(kWritesBeforeSync, "ordering", "a sync does not wait for the writes before it")              \
  X(kLogBeforeIndex, "ordering", "the index gets ahead of the durable log")                      \
  X(kSealBeforeRetire, "ordering", "a log segment goes before what is alive of it is in tables") \
  X(kDumpBeforeRetire, "ordering", "a log segment goes before the index knows the tree")         \
  X(kManifestBeforeRelease, "ordering", "a log segment goes before MANIFEST begins behind it")   \
  X(kLogBeforeSegmentDies, "ordering",                                                           \
    "a resting segment goes before its content's end is durable")                                \
  X(kManifestBeforeSegmentDies, "ordering", "a resting segment goes while MANIFEST names it")    \
  X(kLogBeforeTableDies, "ordering", "a table goes before what made it useless is durable")      \
  X(kNumberAfterSequence, "ordering", "a copy may give numbers of tables that its log names")    \
  X(kHistoryIsDrawn, "ordering", "an opening or a copy keeps the name of the history before")    \
  X(kHistoryIsCompared, "ordering", "a follower goes on with files of another history")          \
  X(kEpochBeforeCut, "ordering", "a salvage cuts before MANIFEST says which epochs were used")   \
  X(kSetAsideLast, "ordering", "a damaged table moves before MANIFEST goes without it")          \
  X(kCleanEndBeforeCut, "ordering", "a segment is cut before its clean end is on the medium")    \
  X(kCushion, "space", "the log is poisoned by a full disk that copies on write")                \
  X(kCushionWhole, "space", "data takes the room that is kept for giving space back")            \
  X(kStopPoolBeforeCut, "ordering", "a segment gets blocks again after a close has cut it")      \
  X(kBlocksBeforeGroup, "ordering", "a group goes where its segment has no blocks yet")          \
  X(kFlushBeforeExpected, "ordering", "an append overtakes what was accepted to be coalesced")   \
  X(kPinOfReader, "liveness", "a log segment goes while somebody reads it")                      \
  X(kPinOfTable, "liveness", "a table goes while somebody reads it")                             \
  X(kPinOfParts, "liveness", "the log is replayed from behind the parts of a large append")      \
  X(kRescueCertain, "liveness", "an index that lost a table shows what is older than that")      \
  X(kLiveOrphans, "liveness", "tables that nothing names stay for ever")                         \
  X(kLiveFork, "liveness", "a branch does not keep alive what it was forked from")               \
  X(kLiveBytes, "liveness", "what dies in a table is not counted")                               \
  X(kLiveEvicted, "liveness", "eviction takes what another branch needs")                        \
  X(kLiveState, "liveness", "a fork forgets a state that was set without a token")               \
  X(kLiveStateShared, "liveness", "a state set without a token is set for others, too")          \
  X(kLiveDecided, "liveness", "the log may name a node that a replay has dead")                  \
  X(kBoundOfRecord, "bound", "a record's header may pass the end of what was read")              \
  X(kBoundOfFooter, "bound", "a footer's entries may pass its end")                              \
  X(kBoundOfEntry, "bound", "an entry of an index block may pass its end")                       \
  X(kBoundOfRestart, "bound", "a restart of an index block may lie anywhere")                    \
  X(kBoundOfFrame, "bound", "a frame may lie outside of its fragment")                           \
  X(kBoundOfField, "bound", "a field may pass the end of its record")                            \
  X(kBoundOfView, "bound", "a KV view may miss layers of its group")                             \
  X(kKeysTurned, "place", "keys come to other positions as they were")                           \
  X(kHoldDirectory, "place", "files are looked up by the path that the store was opened with")   \
  X(kLockIsOurs, "place", "a store whose LOCK is another file by now goes on writing")           \
  X(kAboveStandard, "place", "a file may become what the process takes for its stderr")          \
  X(kFutureIsNow, "clock", "a branch stays newest as long as the clock was once ahead")          \
  X(kTtlFromOpening, "clock", "a clock that was behind lets all expire once it is right")        \
  X(kNoCancel, "place", "a thread that is cancelled in a call leaves others waiting")            \
  X(kNotInChild, "place", "a child of fork() goes on with what is its parent's")                 \
  X(kProveTable, "ordering", "the log is given back for a table that was not read again")        \
  X(kGpuReady, "wait", "memory of a GPU is used before its owner has ended with it")             \
  X(kGpuViewsCopied, "wait", "pages are unpacked before the tables are there")                   \
  X(kGpuTurnsCopied, "wait", "keys are turned by what is not on the GPU yet")                    \
  X(kGpuLayerBehind, "wait", "a layer's event does not wait for what writes the layer")          \
  X(kGpuTableChecked, "wait", "a table on a GPU is written through before it was checked")       \
  X(kGpuHoldWindow, "wait", "a window is read over while it is copied to a GPU")                 \
  X(kGpuHoldPinned, "wait", "pinned pages are overwritten while they are copied to a GPU")       \
  X(kGpuFaults, "bound", "what a kernel could not unpack is told as restored")                   \
  X(kGpuGathered, "wait", "KV is appended before it has come from a GPU")                        \
  X(kGpuStepRun, "wait", "the rows of a step are copied before they are there")                  \
  X(kGpuStepStamp, "place", "rows that a slot had before are taken for those of a step")         \
  X(kGpuFallBackUnseen, "bound", "a layer is written again that others may have read")           \
  X(kGpuBarrier, "wait", "a restore returns while a GPU still works on it")                      \
  X(kBoundOfLog, "bound", "appends make the live log longer than log_bytes_max")                 \
  X(kBoundOfRestores, "bound", "any number of restores take a buffer at once")                   \
  X(kDerivedOfCut, "derived", "what is derived outlives the content that a rewind takes")        \
  X(kDerivedOfEvicted, "derived", "what is derived outlives KV that is evicted")                 \
  X(kLeaseOfDerived, "derived", "content may change in place while something is derived of it")  \
  X(kLeaseOfHit, "liveness", "content may change in place while a find has it on lease")         \
  X(kLeaseOfDead, "liveness", "a lease outlives its content, and its bytes stay counted")        \
  X(kStaleHit, "liveness", "a hit is served though other tokens have taken its place")           \
  X(kHintsBeforeTree, "ordering", "the index of the tree gets ahead of the hints")               \
  X(kObjectWhole, "liveness", "an object loses its bytes and is there by its name still")        \
  X(kObjectSwept, "liveness", "what a crash left of an object stays for good")                   \
  X(kObjectDropped, "liveness", "the directory takes in what was dropped while it was filled")   \
  X(kObjectLeftOut, "liveness", "what the directory has no room for is not there")               \
  X(kObjectLeased, "liveness", "an object is evicted while Exists has it on lease")              \
  X(kObjectTouched, "liveness", "an object that was touched goes when it is its turn")           \
  X(kLengthOfSegment, "length", "a segment may have another length than its header says")        \
  X(kLengthOfGroup, "length", "a group may be longer than its records")                          \
  X(kLengthOfLog, "length", "the log may end before what MANIFEST says it held")                 \
  X(kLengthOfManifest, "length", "MANIFEST may be longer than what it lists")                    \
  X(kLengthOfTokens, "length", "a token block may hold more or fewer tokens")                    \
  X(kLengthOfTokenPayload, "length", "a token block may be longer than its payload")             \
  X(kLengthOfFramePayload, "length", "a KV frame may be longer than its payload")                \
  X(kLengthExpected, "length", "expected_length is not compared")

#ifdef CAIRN_MUTATIONS
namespace cairn {
enum class Mutation {
#define CAIRN_MUTATION_NAME(name, kind, what) name,
  CAIRN_EACH_MUTATION(CAIRN_MUTATION_NAME)
#undef CAIRN_MUTATION_NAME
};
bool IsKept(Mutation mutation);
}  // namespace cairn
#define CAIRN_KEPT(name) ::cairn::IsKept(::cairn::Mutation::name)
#else
#define CAIRN_KEPT(name) true
#endif
