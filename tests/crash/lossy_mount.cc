// SPDX-License-Identifier: Apache-2.0
#include "tests/crash/lossy_mount.h"

#ifdef CAIRN_TESTS_FUSE
#define FUSE_USE_VERSION 31
#include <fuse.h>
#endif
#include <fcntl.h>
#include <signal.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace cairn::crash {

#ifdef CAIRN_TESTS_FUSE
namespace {

struct Node {
  bool directory = false;
  ino_t number = 0;
  std::string now, durable;                      // Bytes.
  std::vector<std::pair<size_t, size_t>> dirty;  // Ranges of `now` that are not in `durable`.

  void Sync() {
    for (const auto& [begin, end] : dirty) CopyToDurable(begin, std::min(end, now.size()));
    durable.resize(now.size());
    dirty.clear();
  }
  void CopyToDurable(size_t begin, size_t end) {
    if (durable.size() < end) durable.resize(end);
    if (begin < end) std::memcpy(durable.data() + begin, now.data() + begin, end - begin);
  }
};
using Names = std::map<std::string, std::shared_ptr<Node>>;

// The daemon has one thread; signals only set these.
volatile sig_atomic_t power_is_off = 0, power_comes_back = 0;
Names names, durable_names;
ino_t last_number = 0;

std::string ParentOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == 0 ? "/" : path.substr(0, slash);
}

bool IsIn(const std::string& path, const std::string& directory) {
  return path != "/" && ParentOf(path) == directory;
}

// Before every call. Not 0: it fails.
int Power() {
  if (power_comes_back != 0) {
    power_comes_back = 0;
    power_is_off = 0;
    names = durable_names;
    for (auto& [path, node] : names) {
      node->now = node->durable;
      node->dirty.clear();
    }
  }
  return power_is_off != 0 ? -EIO : 0;
}

Node* Find(const char* path) {
  const auto found = names.find(path);
  return found == names.end() ? nullptr : found->second.get();
}

int Make(const char* path, bool directory) {
  if (names.contains(path)) return -EEXIST;
  if (!names.contains(ParentOf(path))) return -ENOENT;
  auto node = std::make_shared<Node>();
  node->directory = directory;
  node->number = ++last_number;
  names[path] = std::move(node);
  return 0;
}

int GetAttributes(const char* path, struct stat* info, fuse_file_info*) {
  if (const int off = Power(); off != 0) return off;
  const Node* const node = Find(path);
  if (node == nullptr) return -ENOENT;
  *info = {};
  info->st_ino = node->number;
  info->st_mode = node->directory ? S_IFDIR | 0700 : S_IFREG | 0600;
  info->st_nlink = 1;
  info->st_uid = getuid();
  info->st_gid = getgid();
  info->st_size = static_cast<off_t>(node->now.size());
  info->st_blocks = static_cast<blkcnt_t>((node->now.size() + 511) / 512);
  return 0;
}
int MakeDirectory(const char* path, mode_t) {
  if (const int off = Power(); off != 0) return off;
  return Make(path, true);
}
int Create(const char* path, mode_t, fuse_file_info*) {
  if (const int off = Power(); off != 0) return off;
  return Make(path, false);
}
int Open(const char* path, fuse_file_info*) {
  if (const int off = Power(); off != 0) return off;
  return Find(path) == nullptr ? -ENOENT : 0;
}
int Remove(const char* path) {
  if (const int off = Power(); off != 0) return off;
  return names.erase(path) == 0 ? -ENOENT : 0;
}
int Rename(const char* from, const char* to, unsigned) {
  if (const int off = Power(); off != 0) return off;
  const auto found = names.find(from);
  if (found == names.end()) return -ENOENT;
  if (found->second->directory) return -ENOSYS;
  std::shared_ptr<Node> node = found->second;
  names.erase(found);
  names[to] = std::move(node);
  return 0;
}
int Link(const char* from, const char* to) {
  if (const int off = Power(); off != 0) return off;
  const auto found = names.find(from);
  if (found == names.end()) return -ENOENT;
  return names.emplace(to, found->second).second ? 0 : -EEXIST;
}
int Resize(Node* node, size_t bytes) {
  const size_t before = node->now.size();
  node->now.resize(bytes);
  if (bytes > before) node->dirty.emplace_back(before, bytes);
  return 0;
}
int Truncate(const char* path, off_t bytes, fuse_file_info*) {
  if (const int off = Power(); off != 0) return off;
  Node* const node = Find(path);
  return node == nullptr ? -ENOENT : Resize(node, static_cast<size_t>(bytes));
}
int Allocate(const char* path, int mode, off_t offset, off_t bytes, fuse_file_info*) {
  if (const int off = Power(); off != 0) return off;
  if (mode != 0) return -EOPNOTSUPP;
  Node* const node = Find(path);
  if (node == nullptr) return -ENOENT;
  return Resize(node, std::max(node->now.size(), static_cast<size_t>(offset + bytes)));
}
int Read(const char* path, char* into, size_t bytes, off_t offset, fuse_file_info*) {
  if (const int off = Power(); off != 0) return off;
  const Node* const node = Find(path);
  if (node == nullptr) return -ENOENT;
  const auto begin = static_cast<size_t>(offset);
  if (begin >= node->now.size()) return 0;
  const size_t count = std::min(bytes, node->now.size() - begin);
  std::memcpy(into, node->now.data() + begin, count);
  return static_cast<int>(count);
}
int Write(const char* path, const char* data, size_t bytes, off_t offset, fuse_file_info* info) {
  if (const int off = Power(); off != 0) return off;
  Node* const node = Find(path);
  if (node == nullptr) return -ENOENT;
  const auto begin = static_cast<size_t>(offset), end = begin + bytes;
  if (node->now.size() < end) Resize(node, end);
  std::memcpy(node->now.data() + begin, data, bytes);
  // A write with RWF_DSYNC comes so, since nothing is cached.
  if ((info->flags & O_DSYNC) != 0) {
    node->CopyToDurable(begin, end);
  } else {
    node->dirty.emplace_back(begin, end);
  }
  return static_cast<int>(bytes);
}
int Sync(const char* path, int, fuse_file_info*) {
  if (const int off = Power(); off != 0) return off;
  Node* const node = Find(path);
  if (node == nullptr) return -ENOENT;
  node->Sync();
  return 0;
}
int SyncDirectory(const char* path, int, fuse_file_info*) {
  if (const int off = Power(); off != 0) return off;
  std::erase_if(durable_names, [&](const auto& entry) { return IsIn(entry.first, path); });
  for (const auto& [name, node] : names) {
    if (IsIn(name, path)) durable_names[name] = node;
  }
  return 0;
}
int List(const char* path, void* buffer, fuse_fill_dir_t fill, off_t, fuse_file_info*,
         fuse_readdir_flags) {
  if (const int off = Power(); off != 0) return off;
  for (const auto& [name, node] : names) {
    if (!IsIn(name, path)) continue;
    fill(buffer, name.substr(name.rfind('/') + 1).c_str(), nullptr, 0, fuse_fill_dir_flags{});
  }
  return 0;
}
int Volume(const char*, struct statvfs* info) {
  if (const int off = Power(); off != 0) return off;
  *info = {};
  info->f_bsize = info->f_frsize = 4096;
  info->f_blocks = info->f_bfree = info->f_bavail = 1 << 18;
  info->f_namemax = 255;
  return 0;
}
void* Begin(fuse_conn_info*, fuse_config* config) {
  config->direct_io = 1;
  config->attr_timeout = config->entry_timeout = config->negative_timeout = 0;
  config->hard_remove = 1;
  return nullptr;
}

[[noreturn]] void RunDaemon(const std::string& path) {
  signal(SIGUSR1, [](int) { power_is_off = 1; });
  signal(SIGUSR2, [](int) { power_comes_back = 1; });
  auto root = std::make_shared<Node>();
  root->directory = true;
  root->number = ++last_number;
  names["/"] = durable_names["/"] = std::move(root);
  fuse_operations calls{};
  calls.init = Begin;
  calls.getattr = GetAttributes;
  calls.mkdir = MakeDirectory;
  calls.create = Create;
  calls.open = Open;
  calls.unlink = calls.rmdir = Remove;
  calls.rename = Rename;
  calls.link = Link;
  calls.truncate = Truncate;
  calls.fallocate = Allocate;
  calls.read = Read;
  calls.write = Write;
  calls.fsync = Sync;
  calls.fsyncdir = SyncDirectory;
  calls.readdir = List;
  calls.statfs = Volume;
  std::string program = "lossy", foreground = "-f", single = "-s", target = path;
  char* arguments[] = {program.data(), foreground.data(), single.data(), target.data()};
  _exit(fuse_main_real(4, arguments, &calls, sizeof calls, nullptr));
}

}  // namespace

Result<LossyMount> LossyMount::Make() {
  auto directory = std::make_unique<testing::TempDirectory>();
  const std::string path = directory->path();
  struct stat before{}, after{};
  stat(path.c_str(), &before);
  const pid_t daemon = fork();
  if (daemon == 0) RunDaemon(path);
  LossyMount mount(std::move(directory), daemon);
  for (int i = 0; i < 200; ++i) {
    if (stat(path.c_str(), &after) == 0 && after.st_dev != before.st_dev) return mount;
    usleep(10'000);
    if (waitpid(daemon, nullptr, WNOHANG) == daemon) break;
  }
  return Status(StatusCode::kInvalidState, "nothing was mounted on " + path);
}

LossyMount::~LossyMount() {
  if (directory_ == nullptr) return;
  kill(daemon_, SIGTERM);  // It unmounts.
  waitpid(daemon_, nullptr, 0);
}
#else
Result<LossyMount> LossyMount::Make() {
  return Status(StatusCode::kInvalidState, "built without libfuse3");
}
LossyMount::~LossyMount() = default;
#endif

LossyMount::LossyMount(LossyMount&& other) noexcept
    : directory_(std::move(other.directory_)), daemon_(other.daemon_) {}

void LossyMount::CutPower() { kill(daemon_, SIGUSR1); }
void LossyMount::PowerOn() { kill(daemon_, SIGUSR2); }

}  // namespace cairn::crash
