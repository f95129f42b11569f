/*
 * link/peer_files.c
 *		Files and TLS of connections to other nodes: from settings, never from an address.
 *
 * libpq reads these files while it connects, in the midst of a worker or a backend, and nothing ends a read of a pipe
 * or a device: so this file checks that they are regular files. Each connection reads them again, so a replaced
 * certificate needs no reload. Nothing is kept here.
 */
#include "postgres.h"

#include <sys/stat.h>

#include "base/guc.h"
#include "link/peer.h"
#include "link/peer_private.h"

#include "base/compat.h"

/* No such file can be: libpq goes without, and does not look for the one in the home of the server's user. */
#define NO_FILE "/dev/null/none"

/* Since this version of libpq an address cannot have libpq tell a password in clear text. */
#define REQUIRE_AUTH_SINCE 160000

typedef struct FileSetting
{
	const char *option;
	char **value;
	bool tls;
} FileSetting;

static const FileSetting files[] = {
	{"sslrootcert", &shard_peer_sslrootcert, true}, {"sslcert", &shard_peer_sslcert, true},
	{"sslkey", &shard_peer_sslkey, true},			{"sslcrl", &shard_peer_sslcrl, true},
	{"passfile", &shard_peer_passfile, false},
};

/* A password that is kept for something else is not looked for. */
int
shard_peer_secure_options(ShardPeerOption *options)
{
	int count = 0;

	options[count++] = (ShardPeerOption){"sslmode", shard_guc_peer_sslmode()};
	options[count++] = (ShardPeerOption){"channel_binding", shard_guc_peer_channel_binding()};
	for (int i = 0; i < lengthof(files); i++)
	{
		const char *value = *files[i].value;

		if (value[0] != '\0')
			options[count++] = (ShardPeerOption){files[i].option, value};
		else if (!files[i].tls)
			options[count++] = (ShardPeerOption){files[i].option, NO_FILE};
	}
	if (PQlibVersion() >= REQUIRE_AUTH_SINCE && shard_peer_sslmode != SHARD_SSLMODE_VERIFY_FULL)
		options[count++] = (ShardPeerOption){"require_auth", "!password"};
	Assert(count <= SHARD_PEER_SECURE_OPTIONS);
	return count;
}

bool
shard_peer_secure_check(ShardPeerFailure *failure)
{
	for (int i = 0; i < lengthof(files); i++)
	{
		const char *value = *files[i].value;
		struct stat status;
		char text[MAXPGPATH + 128];

		if (value[0] == '\0' || (files[i].tls && shard_peer_sslmode == SHARD_SSLMODE_DISABLE))
			continue;
		/* libpq's word for the authorities of the system. */
		if (strcmp(value, "system") == 0 && strcmp(files[i].option, "sslrootcert") == 0)
			continue;
		if (stat(value, &status) != 0)
			snprintf(text, sizeof(text), "shard.peer_%s: \"%s\": %s", files[i].option, value,
					 strerror(errno));
		else if (!S_ISREG(status.st_mode))
			snprintf(text, sizeof(text), "shard.peer_%s: \"%s\" is not a regular file",
					 files[i].option, value);
		/* libpq goes without it, and tells the log alone */
		else if (!files[i].tls && (status.st_mode & (S_IRWXG | S_IRWXO)) != 0)
			snprintf(text, sizeof(text),
					 "shard.peer_%s: \"%s\" can be read by others than the server's user: its mode "
					 "has to be 0600 or less",
					 files[i].option, value);
		else
			continue;
		shard_peer_set_failure(failure, ERRCODE_CONFIG_FILE_ERROR, text, NULL,
							   "Correct the setting or the file at this server, and reload.");
		return false;
	}
	return true;
}

const char *
shard_peer_settings_problem(void)
{
	ShardPeerFailure failure;

	return shard_peer_secure_check(&failure) ? NULL : pstrdup(failure.text);
}
