// SPDX-License-Identifier: Apache-2.0
#include "tests/host/host_store.h"

#include <sched.h>
#include <sys/mount.h>

#include "base/core/check.h"
#include "tests/engine/engine_test.h"
#include "tests/support/child.h"

namespace cairn::testing {

Result<HostStore> HostStore::Open(const std::string& path, const Options& options) {
  HostStore host;
  CAIRN_ASSIGN_OR_RETURN(host.store, Store::Open(path, options));
  auto chat = host.store.FindBranch("chat");
  if (chat.status().code() == StatusCode::kNotFound) {
    CAIRN_ASSIGN_OR_RETURN(const ModelId model, host.store.RegisterModel(WideModel()));
    chat = host.store.CreateBranch(model, {.name = "chat"});
  }
  CAIRN_ASSIGN_OR_RETURN(host.chat, std::move(chat));
  CAIRN_ASSIGN_OR_RETURN(host.length, host.chat.length());
  return host;
}

Result<HostStore> HostStore::Open(const std::string& path) { return Open(path, TinyOptions()); }

Status HostStore::Append(uint64_t count) {
  CAIRN_ASSIGN_OR_RETURN(length, AppendSome(chat, WideModel(), length, count));
  return Status::Ok();
}

Status HostStore::DoEverything() {
  for (int i = 0; i < 8; ++i) CAIRN_RETURN_IF_ERROR(Append(16));
  CAIRN_RETURN_IF_ERROR(store.Compact());
  CAIRN_RETURN_IF_ERROR(Append(1));
  return Check();
}

Status HostStore::Check() {
  const auto kv = HasKv(chat, WideModel(), 0, length);
  if (!kv) return Status(StatusCode::kCorruption, kv.message());
  CAIRN_ASSIGN_OR_RETURN(const VerifyReport report, store.Verify(VerifyLevel::kAll));
  if (report.damages.empty()) return Status::Ok();
  return Status(StatusCode::kCorruption, "Verify found damage");
}

Status CheckStore(const std::string& path, uint64_t length) {
  Options options = TinyOptions();
  options.create_if_missing = false;
  CAIRN_ASSIGN_OR_RETURN(HostStore host, HostStore::Open(path, options));
  if (host.length != length) {
    return Status(StatusCode::kCorruption, path + ": " + std::to_string(host.length) + " of " +
                                               std::to_string(length) + " positions");
  }
  CAIRN_RETURN_IF_ERROR(host.Check());
  return host.Close();
}

bool ExpectOk(const Status& status, const std::string& what) {
  return Expect(status.ok(), what + ": " + status.ToString());
}

bool WorksOn(const std::string& path) {
  auto host = HostStore::Open(path + "/state");
  return ExpectOk(host.status(), "open") && ExpectOk(host->DoEverything(), "use") &&
         ExpectOk(host->store.Checkpoint(path + "/copy").status(), "checkpoint") &&
         ExpectOk(host->Close(), "close") &&
         ExpectOk(CheckStore(path + "/state", host->length), "reopen") &&
         ExpectOk(CheckStore(path + "/copy", host->length), "the copy");
}

bool EnterOwnMounts() {
  return unshare(CLONE_NEWNS) == 0 &&
         mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
}

bool MayMount() {
  return InChild([] { return EnterOwnMounts(); });
}

}  // namespace cairn::testing
