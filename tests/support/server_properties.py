"""Files of configuration as Kafka brings them."""

from __future__ import annotations

STOCK = """\
############################# Server Basics #############################

# The role of this server. Setting this puts us in KRaft mode
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093

############################# Socket Server Settings #############################

listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
#log.flush.interval.messages=10000
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""
"""The settings of Kafka 4's config/server.properties."""

_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"

STRANGERS: dict[str, tuple[str, dict[str, str] | str, list[str] | str]] = {
    "a handbook's page on mutual TLS": (
        """\
listeners=PLAINTEXT://:9092,SSL://:9093
advertised.listeners=PLAINTEXT://kafka1.example:9092,SSL://kafka1.example:9093
security.inter.broker.protocol=SSL
ssl.truststore.location=/var/private/ssl/kafka.server.truststore.jks
ssl.truststore.password=s3cret
ssl.keystore.location=/var/private/ssl/kafka.server.keystore.jks
ssl.keystore.password=s3cret
ssl.key.password=s3cret
ssl.client.auth=required
ssl.endpoint.identification.algorithm=
ssl.protocol=TLS
ssl.secure.random.implementation=SHA1PRNG
""",
        {"PLAINTEXT": "PLAINTEXT", "SSL": "SSL required"},
        [],
    ),
    "a handbook's page on SCRAM": (
        f"""\
listeners=SASL_SSL://kafka1:9093
advertised.listeners=SASL_SSL://kafka1:9093
sasl.enabled.mechanisms=SCRAM-SHA-256
sasl.mechanism.inter.broker.protocol=SCRAM-SHA-256
security.inter.broker.protocol=SASL_SSL
listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config={_SCRAM} required \\
   username="admin" \\
   password="s3cret";
ssl.truststore.location=/var/ssl/private/kafka.server.truststore.jks
ssl.truststore.password=s3cret
ssl.keystore.location=/var/ssl/private/kafka.server.keystore.jks
ssl.keystore.password=s3cret
ssl.key.password=s3cret
""",
        {"SASL_SSL": "SASL_SSL none SCRAM-SHA-256"},
        [],
    ),
    "a chart's KRaft broker": (
        f"""\
listeners=CLIENT://:9092,INTERNAL://:9094,EXTERNAL://:9095,CONTROLLER://:9093
advertised.listeners=CLIENT://kafka-0.kafka.svc:9092,INTERNAL://kafka-0.kafka.svc:9094,EXTERNAL://10.0.0.7:30000
listener.security.protocol.map=CLIENT:SASL_PLAINTEXT,INTERNAL:SASL_SSL,EXTERNAL:SASL_SSL,CONTROLLER:SASL_PLAINTEXT
process.roles=controller,broker
node.id=0
controller.listener.names=CONTROLLER
controller.quorum.voters=0@kafka-0.kafka.svc:9093
sasl.mechanism.controller.protocol=PLAIN
listener.name.controller.sasl.enabled.mechanisms=PLAIN
listener.name.controller.plain.sasl.jaas.config={_PLAIN} required username="c" password="s3cret" user_c="s3cret";
inter.broker.listener.name=INTERNAL
sasl.mechanism.inter.broker.protocol=PLAIN
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
listener.name.client.plain.sasl.jaas.config={_PLAIN} required user_user1="s3cret";
listener.name.client.scram-sha-256.sasl.jaas.config={_SCRAM} required;
listener.name.client.scram-sha-512.sasl.jaas.config={_SCRAM} required;
listener.name.internal.plain.sasl.jaas.config={_PLAIN} required username="i" password="s3cret" \\
  user_i="s3cret" user_user1="s3cret";
listener.name.internal.scram-sha-256.sasl.jaas.config={_SCRAM} required username="i" password="s3cret";
listener.name.internal.scram-sha-512.sasl.jaas.config={_SCRAM} required username="i" password="s3cret";
listener.name.external.plain.sasl.jaas.config={_PLAIN} required user_user1="s3cret";
listener.name.external.ssl.client.auth=requested
ssl.keystore.type=JKS
ssl.keystore.location=/opt/chart/kafka/config/certs/kafka.keystore.jks
ssl.truststore.type=JKS
ssl.truststore.location=/opt/chart/kafka/config/certs/kafka.truststore.jks
ssl.keystore.password=s3cret
ssl.truststore.password=s3cret
""",
        {
            "CLIENT": "SASL_PLAINTEXT PLAIN,SCRAM-SHA-256,SCRAM-SHA-512 user1",
            "INTERNAL": "SASL_SSL none PLAIN,SCRAM-SHA-256,SCRAM-SHA-512 i,user1",
            "EXTERNAL": "SASL_SSL requested PLAIN,SCRAM-SHA-256,SCRAM-SHA-512 user1",
        },
        [],
    ),
    "an operator's broker": (
        """\
node.id=0
listeners=CONTROLPLANE-9090://0.0.0.0:9090,REPLICATION-9091://0.0.0.0:9091,PLAIN-9092://0.0.0.0:9092,TLS-9093://0.0.0.0:9093
advertised.listeners=REPLICATION-9091://my-cluster-0.brokers.ns.svc:9091,PLAIN-9092://my-cluster-0.brokers.ns.svc:9092,TLS-9093://my-cluster-0.brokers.ns.svc:9093
listener.security.protocol.map=CONTROLPLANE-9090:SSL,REPLICATION-9091:SSL,PLAIN-9092:PLAINTEXT,TLS-9093:SSL
controller.listener.names=CONTROLPLANE-9090
inter.broker.listener.name=REPLICATION-9091
listener.name.controlplane-9090.ssl.client.auth=required
listener.name.controlplane-9090.ssl.keystore.location=/tmp/kafka/cluster.keystore.p12
listener.name.replication-9091.ssl.keystore.location=/tmp/kafka/cluster.keystore.p12
listener.name.replication-9091.ssl.keystore.password=s3cret
listener.name.replication-9091.ssl.keystore.type=PKCS12
listener.name.replication-9091.ssl.truststore.location=/tmp/kafka/cluster.truststore.p12
listener.name.replication-9091.ssl.truststore.password=s3cret
listener.name.replication-9091.ssl.truststore.type=PKCS12
listener.name.replication-9091.ssl.client.auth=required
listener.name.tls-9093.ssl.client.auth=required
listener.name.tls-9093.ssl.truststore.location=/tmp/kafka/clients.truststore.p12
listener.name.tls-9093.ssl.truststore.password=s3cret
listener.name.tls-9093.ssl.truststore.type=PKCS12
listener.name.tls-9093.ssl.keystore.location=/tmp/kafka/cluster.keystore.p12
listener.name.tls-9093.ssl.keystore.password=s3cret
listener.name.tls-9093.ssl.keystore.type=PKCS12
listener.name.plain-9092.connections.max.reauth.ms=3600000
ssl.endpoint.identification.algorithm=HTTPS
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:CN=my-cluster-kafka,O=io.operator;User:CN=cluster-operator,O=io.operator
""",
        {"REPLICATION-9091": "SSL required", "PLAIN-9092": "PLAINTEXT", "TLS-9093": "SSL required"},
        ["listener.name.plain-9092.connections.max.reauth.ms"],
    ),
    "a demonstration's two listeners": (
        f"""\
listeners=SASL_PLAINTEXT://127.0.0.1:9092,PLAINTEXT://127.0.0.1:9093
advertised.listeners=SASL_PLAINTEXT://127.0.0.1:9092,PLAINTEXT://127.0.0.1:9093
sasl.mechanism.inter.broker.protocol=PLAINTEXT
security.inter.broker.protocol=PLAINTEXT
sasl.enabled.mechanisms=SCRAM-SHA-256
listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config={_SCRAM} required;
""",
        {"SASL_PLAINTEXT": "SASL_PLAINTEXT SCRAM-SHA-256", "PLAINTEXT": "PLAINTEXT"},
        [],
    ),
    "a vendor's handbook with ZooKeeper and rules": (
        """\
broker.id=1
zookeeper.connect=zoo1.example:2181
listeners=INT1://:9092,INT2://:9093,REPLICATION://:9091
listener.security.protocol.map=INT1:SASL_PLAINTEXT,INT2:SASL_SSL,REPLICATION:SSL
inter.broker.listener.name=REPLICATION
sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.int2.ssl.keystore.location=/path/to/keystore.jks
listener.name.int2.ssl.keystore.password=s3cret
ssl.keystore.location=/path/to/server.jks
ssl.keystore.password=s3cret
ssl.truststore.location=/path/to/truststore.jks
ssl.truststore.password=s3cret
ssl.client.auth=required
ssl.principal.mapping.rules=RULE:^CN=(.*?),(.*)$/$1/,DEFAULT
ssl.cipher.suites=TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,TLS_AES_256_GCM_SHA384
authorizer.class.name=kafka.security.authorizer.AclAuthorizer
super.users=User:kafka
""",
        {"INT1": "SASL_PLAINTEXT SCRAM-SHA-512", "INT2": "SASL_SSL none SCRAM-SHA-512", "REPLICATION": "SSL required"},
        [],
    ),
    "a question about PLAIN and a file of JAAS": (
        """\
listeners=SASL_PLAINTEXT://localhost:9093
advertised.listeners=SASL_PLAINTEXT://localhost:9093
security.inter.broker.protocol=SASL_PLAINTEXT
sasl.mechanism.inter.broker.protocol=PLAIN
sasl.enabled.mechanisms=PLAIN
""",
        "listener SASL_PLAINTEXT://localhost:9093, SASL_PLAINTEXT: PLAIN has no users",
        "java.security.auth.login.config",
    ),
    "a question about a listener in capital letters": (
        f"""\
listeners=SASL_PLAINTEXT://0.0.0.0:9092
listener.security.protocol.map: SASL_PLAINTEXT:SASL_PLAINTEXT
listener.name.SASL_PLAINTEXT.plain.sasl.jaas.config: {_PLAIN} required \\
 username="username" \\
 password="s3cret" \\
 user_username="s3cret";
sasl.enabled.mechanisms=PLAIN
sasl.mechanism.inter.broker.protocol=PLAIN
secutiy.inter.broker.protocol=SASL_PLAINTEXT
""",
        "PLAIN has no users",
        "listener.name.SASL_PLAINTEXT.plain.sasl.jaas.config is not obeyed, neither by Kafka: its name is",
    ),
    "a handbook's page on Kerberos": (
        """\
listeners=SASL_PLAINTEXT://host.name:9092
security.inter.broker.protocol=SASL_PLAINTEXT
sasl.mechanism.inter.broker.protocol=GSSAPI
sasl.enabled.mechanisms=GSSAPI
sasl.kerberos.service.name=kafka
""",
        "sasl.enabled.mechanisms: plog does not speak GSSAPI",
        "leave it out",
    ),
    "an operator's broker with tokens": (
        """\
listeners=EXTERNAL-9094://0.0.0.0:9094
listener.security.protocol.map=EXTERNAL-9094:SASL_SSL
principal.builder.class=io.operator.kafka.oauth.server.OAuthKafkaPrincipalBuilder
listener.name.external-9094.oauthbearer.sasl.server.callback.handler.class=io.operator.kafka.oauth.server.ValidatorHandler
listener.name.external-9094.oauthbearer.sasl.jaas.config=io.operator.kafka.oauth.client.LoginModule required;
listener.name.external-9094.sasl.enabled.mechanisms=OAUTHBEARER
""",
        "principal.builder.class (a class decides who a client is)",
        "--insecure-ignore-security",
    ),
    "a distribution's role-based broker": (
        """\
listeners=INTERNAL://:9092,TOKEN://:9093
listener.security.protocol.map=INTERNAL:SASL_PLAINTEXT,TOKEN:SASL_SSL
inter.broker.listener.name=INTERNAL
sasl.enabled.mechanisms=PLAIN,OAUTHBEARER
authorizer.class.name=io.distribution.kafka.security.authorizer.ServerAuthorizer
delegation.token.master.key=s3cret
""",
        "delegation.token.master.key (clients log in with delegation tokens)",
        "ACLs are obeyed by authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    ),
}
"""Configurations of brokers as other people have them, by where they are from: the text, what clients must do at each
listener or a part of the refusal, and the keys that change nothing or a part of the refusal's hint.
"""
